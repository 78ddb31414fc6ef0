// SPDX-License-Identifier: Apache-2.0
// Cross entropy from logits. Forward looks at each logit once: every thread keeps the largest that
// it has seen and the sum of exponentials from there.
#include "kernels/cuda/cross_entropy_launch.h"

#include <cmath>

#include "kernels/cuda/device.h"
#include "kernels/cuda/primitives/rows.h"

namespace meshloom::kernels::cuda {
namespace {

/// What stands for the target of a row whose class is none of these columns.
constexpr std::int64_t kNoColumn = -1;

struct LossRows {
  const void* logits;
  std::int64_t row_stride;
  std::int64_t rows, columns;
  const std::int64_t* targets;
  RowScalars losses, lse;
  std::int64_t ignore_index;
  double smoothing, grad_scale;
  double uniform;  // of the smoothing, for each of all classes
  bool sliced;

  explicit LossRows(const CrossEntropyArguments& a)
      : logits(a.logits.data),
        row_stride(a.logits.strides[0]),
        rows(a.targets.numel),
        columns(a.logits.sizes[1]),
        targets(static_cast<const std::int64_t*>(a.targets.data)),
        losses(a.losses.data, a.losses.dtype),
        lse(a.lse.data, a.lse.dtype),
        ignore_index(a.ignore_index),
        smoothing(a.smoothing),
        grad_scale(a.grad_scale),
        uniform(a.smoothing / static_cast<double>(a.total > 0 ? a.total : columns)),
        sliced(a.total > 0) {}

  template <class T>
  __device__ __forceinline__ const T* row(std::int64_t index) const {
    return static_cast<const T*>(logits) + index * row_stride;
  }
  __device__ __forceinline__ std::int64_t column_of(std::int64_t target) const {
    return target >= 0 && target < columns ? target : kNoColumn;
  }
};

/// The loss of a row that counts; of a slice of the classes its share, without lse.
__device__ double row_loss(const LossRows& args, double lse, double logit, double sum) {
  const double spread = args.smoothing == 0.0 ? 0.0 : args.uniform * sum;
  if (args.sliced) return (args.smoothing - 1.0) * logit - spread;
  if (args.smoothing == 0.0) return lse - logit;
  return (1.0 - args.smoothing) * (lse - logit) + (args.smoothing * lse - spread);
}

/// exp(value - top), 0 for -inf even where all are that.
template <class F>
__device__ __forceinline__ F exp_from(F value, F top) {
  return top == -INFINITY ? F{0} : std::exp(value - top);
}

template <class T, class Group>
__global__ void __launch_bounds__(Group::kBlock, 1) cross_entropy_rows(LossRows args) {
  using F = Compute<T>;
  const std::int64_t row = Group::row();
  if (row >= args.rows) return;
  const std::int64_t target = args.targets[row];
  const bool ignored = target == args.ignore_index;
  if (ignored && args.lse.data == nullptr) {
    if (Group::thread() == 0) args.losses.store(row, 0.0);
    return;
  }
  const T* x = args.row<T>(row);
  const bool want_sum = args.smoothing != 0.0;

  F own_top = -INFINITY, own_exponentials = 0, sum = 0;
  for_columns<Group>(args.columns, [&](std::int64_t i, auto piece) {
    const auto v = load_values(x + i, piece);
    F top = own_top;
    for (int j = 0; j < piece.value; ++j) top = MaxOf{}(top, v[j]);
    own_exponentials *= exp_from(own_top, top);
    for (int j = 0; j < piece.value; ++j) own_exponentials += exp_from(v[j], top);
    own_top = top;
    if (want_sum)
      for (int j = 0; j < piece.value; ++j) sum += v[j];
  });
  const F top = Group::reduce(own_top, MaxOf{});
  const F exponentials = Group::reduce(own_exponentials * exp_from(own_top, top), SumOf{});
  sum = Group::reduce(sum, SumOf{});

  if (Group::thread() != 0) return;
  const double lse = static_cast<double>(top) + std::log(static_cast<double>(exponentials));
  if (args.lse.data != nullptr) args.lse.store(row, lse);
  const std::int64_t column = args.column_of(target);
  const double logit = column == kNoColumn ? 0.0 : static_cast<double>(to_compute(x[column]));
  args.losses.store(row, ignored ? 0.0 : row_loss(args, lse, logit, static_cast<double>(sum)));
}

// dlogits = scale * (exp(logits - lse) - uniform), and at the target less scale * (1 - smoothing),
// before anything is rounded to 16 bits. A thread writes what it alone has read, so that dlogits
// may take the place of the logits.
template <class T, class D, class Group>
__global__ void __launch_bounds__(Group::kBlock, 1)
    cross_entropy_backward_rows(D* dlogits, std::int64_t dlogits_stride, RowScalars grad_losses,
                                LossRows args) {
  using F = Compute<T>;
  const std::int64_t row = Group::row();
  if (row >= args.rows) return;
  const T* x = args.row<T>(row);
  D* dx = dlogits + row * dlogits_stride;
  const std::int64_t target = args.targets[row];
  if (target == args.ignore_index) {
    for_columns<Group>(args.columns, [&](std::int64_t i, auto piece) {
      store_values(dx + i, Values<F, piece.value>{}, piece);
    });
    return;
  }
  const double scale =
      (grad_losses.data == nullptr ? 1.0 : grad_losses.load<double>(row)) * args.grad_scale;
  const std::int64_t column = args.column_of(target);
  const F lse = args.lse.load<F>(row), factor = static_cast<F>(scale);
  const F uniform = static_cast<F>(args.uniform), own = static_cast<F>(1.0 - args.smoothing);
  for_columns<Group>(args.columns, [&](std::int64_t i, auto piece) {
    auto v = load_values(x + i, piece);
    for (int j = 0; j < piece.value; ++j) v[j] = std::exp(v[j] - lse) - uniform;
    if (column >= i && column < i + piece.value)
      for (int j = 0; j < piece.value; ++j) v[j] -= column == i + j ? own : F{0};
    for (int j = 0; j < piece.value; ++j) v[j] *= factor;
    store_values(dx + i, v, piece);
  });
}

constexpr int kCombineThreads = 128;

template <class T>
__global__ void __launch_bounds__(kCombineThreads)
    combine_rows(T* losses, T* lse, const T* slices, const std::int64_t* targets,
                 std::int64_t ranks, std::int64_t rows, std::int64_t ignore_index) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kCombineThreads + threadIdx.x;
  if (row >= rows) return;
  double top = -INFINITY;
  for (std::int64_t r = 0; r < ranks; ++r)
    top = MaxOf{}(top, static_cast<double>(slices[(2 * r + 1) * rows + row]));
  double exponentials = 0.0, loss = 0.0;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const double own = static_cast<double>(slices[(2 * r + 1) * rows + row]);
    exponentials += own == top ? 1.0 : std::exp(own - top);
    loss += static_cast<double>(slices[2 * r * rows + row]);
  }
  const double total = top + std::log(exponentials);
  lse[row] = static_cast<T>(total);
  losses[row] = targets[row] == ignore_index ? T{0} : static_cast<T>(total + loss);
}

bool rows_fit_vectors(const DeviceView& matrix) {
  return vectors_fit(matrix.data, matrix.strides[0], dtype_size(matrix.dtype));
}

template <class T, class D, class Group>
void launch_backward_rows(const DeviceView& dlogits, const DeviceView& grad_losses,
                          const LossRows& rows, cudaStream_t stream) {
  launch(cross_entropy_backward_rows<T, D, Group>, Group::grid(rows.rows), dim3(Group::kBlock), 0,
         stream, static_cast<D*>(dlogits.data), dlogits.strides[0],
         RowScalars(grad_losses.data, grad_losses.dtype), rows);
}

template <class T, class D>
void launch_backward(const DeviceView& dlogits, const DeviceView& grad_losses,
                     const CrossEntropyArguments& arguments, cudaStream_t stream) {
  const LossRows rows(arguments);
  // A piece of columns is 16 bytes of the logits, and less of a narrower gradient.
  const bool aligned = rows_fit_vectors(arguments.logits) && rows_fit_vectors(dlogits);
  for_row_kernel<T>(rows.columns, aligned, [&]<class Group>(TypeTag<Group>) {
    launch_backward_rows<T, D, Group>(dlogits, grad_losses, rows, stream);
  });
}

}  // namespace

void launch_cross_entropy(const CrossEntropyArguments& arguments, cudaStream_t stream) {
  const LossRows rows(arguments);
  for_floating("cross_entropy", arguments.logits.dtype, [&]<class T>(TypeTag<T>) {
    for_row_kernel<T>(rows.columns, rows_fit_vectors(arguments.logits),
                      [&]<class Group>(TypeTag<Group>) {
                        launch(cross_entropy_rows<T, Group>, Group::grid(rows.rows),
                               dim3(Group::kBlock), 0, stream, rows);
                      });
  });
}

void launch_cross_entropy_backward(const DeviceView& dlogits, const DeviceView& grad_losses,
                                   const CrossEntropyArguments& arguments, cudaStream_t stream) {
  constexpr const char* kWhat = "cross_entropy_backward";
  const DType logits = arguments.logits.dtype;
  if (logits == DType::kFloat32 && dlogits.dtype == DType::kBFloat16)
    return launch_backward<float, __nv_bfloat16>(dlogits, grad_losses, arguments, stream);
  // float16 is slow wherever it goes by rows.
  if (logits == DType::kFloat32 && dlogits.dtype == DType::kFloat16)
    return launch_backward_rows<float, __half, RowGroup<128, 1, true>>(dlogits, grad_losses,
                                                                       LossRows(arguments), stream);
  if (logits != dlogits.dtype) refuse_dtype(kWhat, dlogits.dtype);
  for_floating(kWhat, logits, [&]<class T>(TypeTag<T>) {
    launch_backward<T, T>(dlogits, grad_losses, arguments, stream);
  });
}

void launch_combine_class_slices(const CrossEntropyArguments& arguments, const DeviceView& slices,
                                 cudaStream_t stream) {
  const std::int64_t rows = slices.sizes[2];
  const auto run = [&]<class T>(TypeTag<T>) {
    launch(combine_rows<T>, grid_for(rows, kCombineThreads), dim3(kCombineThreads), 0, stream,
           static_cast<T*>(arguments.losses.data), static_cast<T*>(arguments.lse.data),
           static_cast<const T*>(slices.data),
           static_cast<const std::int64_t*>(arguments.targets.data), slices.sizes[0], rows,
           arguments.ignore_index);
  };
  if (arguments.losses.dtype == DType::kFloat64)
    run(TypeTag<double>{});
  else
    run(TypeTag<float>{});
}

}  // namespace meshloom::kernels::cuda
