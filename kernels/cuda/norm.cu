// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm. A warp or a block has a row; the gradients of weight and bias are summed
// over the rows by kernels of their own.
#include "kernels/cuda/norm_launch.h"

#include <cmath>

#include "kernels/cuda/device.h"
#include "kernels/cuda/primitives/column_sums.h"
#include "kernels/cuda/primitives/rows.h"

namespace meshloom::kernels::cuda {
namespace {

/// A weight or a bias beside elements of another dtype: float64 beside float64, else float32,
/// bfloat16 or float16, which a branch that all threads take alike tells apart.
struct Parameter {
  const void* data;
  DType dtype;

  explicit Parameter(const DeviceView& view) : data(view.data), dtype(view.dtype) {}

  __device__ __forceinline__ bool given() const { return data != nullptr; }
  template <class F, class Columns>
  __device__ __forceinline__ Values<F, Columns::value> load(std::int64_t i, Columns piece) const {
    if constexpr (std::is_same_v<F, double>) {
      return load_values(static_cast<const double*>(data) + i, piece);
    } else {
      if (dtype == DType::kBFloat16)
        return load_values(static_cast<const __nv_bfloat16*>(data) + i, piece);
      if (dtype == DType::kFloat16) return load_values(static_cast<const __half*>(data) + i, piece);
      return load_values(static_cast<const float*>(data) + i, piece);
    }
  }
};

bool fits_beside(const DeviceView& parameter, DType elements) {
  if (parameter.data == nullptr) return true;
  if (elements == DType::kFloat64 || parameter.dtype == DType::kFloat64)
    return parameter.dtype == elements;
  return parameter.dtype == DType::kFloat32 || parameter.dtype == DType::kBFloat16 ||
         parameter.dtype == DType::kFloat16;
}

void check_parameter(const char* what, const DeviceView& parameter, DType elements) {
  if (!fits_beside(parameter, elements)) refuse_dtype(what, parameter.dtype);
}

template <class T>
struct NormRows {
  T *y, *sum;
  const T *x, *residual;
  Parameter weight, bias;
  RowScalars mean, rstd;
  std::int64_t rows, columns;
  Compute<T> eps;
  bool rms;
};

template <class T, class Group>
__global__ void __launch_bounds__(Group::kBlock, 1) norm_rows(NormRows<T> args) {
  using F = Compute<T>;
  const std::int64_t row = Group::row();
  if (row >= args.rows) return;
  const std::int64_t begin = row * args.columns;
  const F columns = static_cast<F>(args.columns);

  // With a residual the sum is rounded as it is stored, so that forward and backward see the same
  // numbers.
  F total = 0;
  for_columns<Group>(args.columns, [&](std::int64_t i, auto piece) {
    auto v = load_values(args.x + begin + i, piece);
    if (args.residual != nullptr) {
      const auto r = load_values(args.residual + begin + i, piece);
      for (int j = 0; j < piece.value; ++j) v[j] = to_compute(from_compute<T>(v[j] + r[j]));
      store_values(args.sum + begin + i, v, piece);
    }
    for (int j = 0; j < piece.value; ++j) total += args.rms ? v[j] * v[j] : v[j];
  });
  total = Group::reduce(total, SumOf{});

  const T* x = args.residual != nullptr ? args.sum : args.x;
  F mean = 0, squares = total;
  if (!args.rms) {
    mean = total / columns;
    squares = 0;
    for_columns<Group>(args.columns, [&](std::int64_t i, auto piece) {
      const auto v = load_values(x + begin + i, piece);
      for (int j = 0; j < piece.value; ++j) squares += (v[j] - mean) * (v[j] - mean);
    });
    squares = Group::reduce(squares, SumOf{});
  }
  const F rstd = F{1} / std::sqrt(squares / columns + args.eps);
  if (Group::thread() == 0) {
    if (args.mean.data != nullptr) args.mean.store(row, mean);
    if (args.rstd.data != nullptr) args.rstd.store(row, rstd);
  }

  for_columns<Group>(args.columns, [&](std::int64_t i, auto piece) {
    auto v = load_values(x + begin + i, piece);
    for (int j = 0; j < piece.value; ++j) v[j] = (v[j] - mean) * rstd;
    if (args.weight.given()) {
      const auto w = args.weight.template load<F>(i, piece);
      for (int j = 0; j < piece.value; ++j) v[j] *= w[j];
    }
    if (args.bias.given()) {
      const auto b = args.bias.template load<F>(i, piece);
      for (int j = 0; j < piece.value; ++j) v[j] += b[j];
    }
    store_values(args.y + begin + i, v, piece);
  });
}

template <class T>
struct NormGradRows {
  T* dx;
  const T *dy, *x;
  Parameter weight;
  RowScalars mean, rstd;  // without mean: RMS norm
  std::int64_t rows, columns;
  bool accumulate_dx;
};

// With g = dy * weight and n = (x - mean) * rstd, over one row:
//   dx = rstd * (g - mean(g) - n * mean(g n)), without mean(g) for RMS norm.
template <class T, class Group>
__global__ void __launch_bounds__(Group::kBlock, 1) norm_backward_rows(NormGradRows<T> args) {
  using F = Compute<T>;
  const std::int64_t row = Group::row();
  if (row >= args.rows) return;
  const std::int64_t begin = row * args.columns;
  const F columns = static_cast<F>(args.columns);
  const bool centred = args.mean.data != nullptr;
  const F mean = centred ? args.mean.template load<F>(row) : F{0};
  const F rstd = args.rstd.template load<F>(row);
  const auto grad_at = [&](std::int64_t i, auto piece) {
    auto g = load_values(args.dy + begin + i, piece);
    if (args.weight.given()) {
      const auto w = args.weight.template load<F>(i, piece);
      for (int j = 0; j < piece.value; ++j) g[j] *= w[j];
    }
    return g;
  };

  F grad = 0, product = 0;
  for_columns<Group>(args.columns, [&](std::int64_t i, auto piece) {
    const auto g = grad_at(i, piece);
    const auto v = load_values(args.x + begin + i, piece);
    for (int j = 0; j < piece.value; ++j) {
      grad += g[j];
      product += g[j] * ((v[j] - mean) * rstd);
    }
  });
  grad = centred ? Group::reduce(grad, SumOf{}) : F{0};
  product = Group::reduce(product, SumOf{});

  const F center = grad / columns, slope = product / columns;
  for_columns<Group>(args.columns, [&](std::int64_t i, auto piece) {
    auto g = grad_at(i, piece);
    const auto v = load_values(args.x + begin + i, piece);
    for (int j = 0; j < piece.value; ++j)
      g[j] = rstd * (g[j] - center - (v[j] - mean) * rstd * slope);
    if (args.accumulate_dx) {
      const auto old = load_values(args.dx + begin + i, piece);
      for (int j = 0; j < piece.value; ++j) g[j] += old[j];
    }
    store_values(args.dx + begin + i, g, piece);
  });
}

// partials [2, slabs, columns]: the sums over a slab's rows of dy n, and of dy. A thread has kCount
// columns.
template <class T, int kCount>
__global__ void __launch_bounds__(kColumnSumThreads)
    norm_parameter_slabs(Compute<T>* partials, NormGradRows<T> args, std::int64_t slabs,
                         std::int64_t slab_rows, bool with_bias) {
  using F = Compute<T>;
  MESHLOOM_SHARED(shared, F[kColumnSumThreads]);
  const std::int64_t slab = blockIdx.x % slabs;
  const std::int64_t column =
      (blockIdx.x / slabs * kColumnLanes + threadIdx.x % kColumnLanes) * kCount;
  const std::int64_t first = slab * slab_rows;
  const std::int64_t last = first + slab_rows < args.rows ? first + slab_rows : args.rows;
  const bool inside = column < args.columns;
  Values<F, kCount> dweight{}, dbias{};
  for (std::int64_t r = first + threadIdx.x / kColumnLanes; inside && r < last; r += kRowLanes) {
    const F mean = args.mean.data != nullptr ? args.mean.template load<F>(r) : F{0};
    const F rstd = args.rstd.template load<F>(r);
    const auto g = load_values<kCount>(args.dy + r * args.columns + column);
    const auto v = load_values<kCount>(args.x + r * args.columns + column);
    for (int j = 0; j < kCount; ++j) {
      dweight[j] += g[j] * ((v[j] - mean) * rstd);
      dbias[j] += g[j];
    }
  }
  const bool writes = inside && threadIdx.x < kColumnLanes;
  F* out = partials + slab * args.columns + column;
  for (int j = 0; j < kCount; ++j) {
    const F sum = add_row_lanes(shared, dweight[j]);
    if (writes) out[j] = sum;
  }
  if (!with_bias) return;
  for (int j = 0; j < kCount; ++j) {
    const F sum = add_row_lanes(shared, dbias[j]);
    if (writes) out[slabs * args.columns + j] = sum;
  }
}

template <class T>
void launch_parameter_grads(const NormBackwardArguments& arguments, const NormGradRows<T>& rows,
                            bool vectors, void* scratch, cudaStream_t stream) {
  using F = Compute<T>;
  auto* dweight = static_cast<F*>(arguments.dweight.data);
  auto* dbias = static_cast<F*>(arguments.dbias.data);
  if (dweight == nullptr && dbias == nullptr) return;
  const std::int64_t slabs = column_slabs(rows.rows);
  const std::int64_t slab_rows = divide_up(rows.rows, slabs);
  auto* partials = static_cast<F*>(scratch);
  const auto run = [&]<int kCount>(IntTag<kCount>) {
    const std::int64_t tiles = divide_up<std::int64_t>(rows.columns, kColumnLanes * kCount);
    launch(norm_parameter_slabs<T, kCount>, grid_for(tiles * slabs, 1), dim3(kColumnSumThreads), 0,
           stream, partials, rows, slabs, slab_rows, dbias != nullptr);
  };
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, __nv_bfloat16>) {
    if (vectors)
      run(IntTag<kVectorElements<T>>{});
    else
      run(IntTag<1>{});
  } else {
    run(IntTag<1>{});
  }
  launch_add_slabs(dweight, dbias, partials, slabs, rows.columns, arguments.accumulate_params,
                   stream);
}

}  // namespace

void launch_norm(const NormArguments& arguments, cudaStream_t stream) {
  const auto& [y, sum, mean, rstd, x, residual, weight, bias, eps, rms] = arguments;
  const std::int64_t columns = x.sizes[x.dims - 1], rows = x.numel / columns;
  for (const DeviceView* parameter : {&weight, &bias})
    check_parameter("norm by a parameter", *parameter, x.dtype);
  for_floating("norm", x.dtype, [&]<class T>(TypeTag<T>) {
    bool vectors = true;
    for (const DeviceView* view : {&y, &sum, &x, &residual, &weight, &bias})
      vectors = vectors && vectors_fit(view->data, columns, sizeof(T));
    const NormRows<T> args{static_cast<T*>(y.data),
                           static_cast<T*>(sum.data),
                           static_cast<const T*>(x.data),
                           static_cast<const T*>(residual.data),
                           Parameter(weight),
                           Parameter(bias),
                           RowScalars(mean.data, mean.dtype),
                           RowScalars(rstd.data, rstd.dtype),
                           rows,
                           columns,
                           static_cast<Compute<T>>(eps),
                           rms};
    for_row_kernel<T>(columns, vectors, [&]<class Group>(TypeTag<Group>) {
      launch(norm_rows<T, Group>, Group::grid(rows), dim3(Group::kBlock), 0, stream, args);
    });
  });
}

std::size_t norm_backward_scratch(const NormBackwardArguments& arguments) {
  const DeviceView& x = arguments.x;
  const std::int64_t columns = x.sizes[x.dims - 1];
  if (arguments.dweight.data == nullptr && arguments.dbias.data == nullptr) return 0;
  const std::size_t element = x.dtype == DType::kFloat64 ? sizeof(double) : sizeof(float);
  return static_cast<std::size_t>(2 * column_slabs(x.numel / columns) * columns) * element;
}

void launch_norm_backward(const NormBackwardArguments& arguments, void* scratch,
                          cudaStream_t stream) {
  const auto& [dx, dweight, dbias, dy, x, weight, mean, rstd, accumulate_dx, accumulate] =
      arguments;
  const std::int64_t columns = x.sizes[x.dims - 1], rows = x.numel / columns;
  check_parameter("norm_backward by a weight", weight, x.dtype);
  for_floating("norm_backward", x.dtype, [&]<class T>(TypeTag<T>) {
    bool vectors = true;
    for (const DeviceView* view : {&dx, &dy, &x, &weight})
      vectors = vectors && vectors_fit(view->data, columns, sizeof(T));
    const NormGradRows<T> args{static_cast<T*>(dx.data),
                               static_cast<const T*>(dy.data),
                               static_cast<const T*>(x.data),
                               Parameter(weight),
                               RowScalars(mean.data, mean.dtype),
                               RowScalars(rstd.data, rstd.dtype),
                               rows,
                               columns,
                               accumulate_dx};
    for_row_kernel<T>(columns, vectors, [&]<class Group>(TypeTag<Group>) {
      launch(norm_backward_rows<T, Group>, Group::grid(rows), dim3(Group::kBlock), 0, stream, args);
    });
    launch_parameter_grads<T>(arguments, args, vectors, scratch, stream);
  });
}

}  // namespace meshloom::kernels::cuda
