// SPDX-License-Identifier: Apache-2.0
// Elementwise functions of several tensors: calls of Backend on the CPU.
#include "kernels/cpu/cpu_backend.h"

#include "kernels/cpu/simd/dispatch.h"
#include "kernels/cpu/simd/streaming.h"
#include "kernels/cpu/staging.h"
#include "kernels/cpu/strided_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/coarse_math.h"
#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/simd/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using V = hn::Vec<simd::FloatTag>;

template <class Fn>
HWY_INLINE void dispatch_binary(BinaryOp op, const Fn& fn) {
  switch (op) {
    case BinaryOp::kAdd: return fn([](V a, V b) HWY_ATTR { return hn::Add(a, b); });
    case BinaryOp::kSub: return fn([](V a, V b) HWY_ATTR { return hn::Sub(a, b); });
    case BinaryOp::kMul: return fn([](V a, V b) HWY_ATTR { return hn::Mul(a, b); });
    case BinaryOp::kDiv: return fn([](V a, V b) HWY_ATTR { return hn::Div(a, b); });
  }
}

template <class T>
HWY_INLINE float as_float(T value) {
  return static_cast<float>(value);
}

// a and b dense, or one element each for all of y (stride 0).
void binary_row(BinaryOp op, DType dtype, bool stream, void* y, const void* a,
                std::int64_t a_stride, const void* b, std::int64_t b_stride, std::size_t n) {
  dispatch_float(dtype, "binary", [&]<typename T>(TypeTag<T>) HWY_ATTR {
    const simd::FloatTag d;
    T* const out = static_cast<T*>(y);
    const T* const left = static_cast<const T*>(a);
    const T* const right = static_cast<const T*>(b);
    dispatch_binary(op, [&](auto f) HWY_ATTR {
      if (a_stride != 0 && b_stride != 0) {
        simd::map_row(stream, out, n, f, left, right);
      } else if (a_stride != 0) {
        const V c = hn::Set(d, as_float(*right));
        simd::map_row(
            stream, out, n, [f, c](V v) HWY_ATTR { return f(v, c); }, left);
      } else if (b_stride != 0) {
        const V c = hn::Set(d, as_float(*left));
        simd::map_row(
            stream, out, n, [f, c](V v) HWY_ATTR { return f(c, v); }, right);
      } else {
        const V c = f(hn::Set(d, as_float(*left)), hn::Set(d, as_float(*right)));
        for (std::size_t i = 0; i < n; ++i) simd::store_n(d, c, out + i, 1);
      }
    });
  });
}

void swiglu_row(DType dtype, bool stream, void* y, const void* gate, const void* up,
                std::size_t n) {
  simd::dispatch_computed(dtype, "swiglu", [&]<typename T>(TypeTag<T>) HWY_ATTR {
    simd::map_row(
        stream, static_cast<T*>(y), n,
        [](V g, V u) HWY_ATTR {
          const simd::FloatTag d;
          if constexpr (simd::kCoarseSuffices<T>)
            return hn::Mul(simd::coarse::silu(d, g), u);
          else
            return hn::Mul(simd::silu(d, g), u);
        },
        static_cast<const T*>(gate), static_cast<const T*>(up));
  });
}

template <class T>
void swiglu_backward_typed(T* dgate, T* dup, const T* dy, const T* gate, const T* up,
                           std::size_t n) {
  const simd::FloatTag d;
  const V one = hn::Set(d, 1.0f);
  const std::size_t lanes = hn::Lanes(d);
  const auto gradients = [&](V grad, V g, V u, V& grad_gate, V& grad_up) HWY_ATTR {
    V s;
    if constexpr (simd::kCoarseSuffices<T>)
      s = simd::coarse::sigmoid(d, g);
    else
      s = simd::sigmoid(d, g);
    const V slope = hn::Mul(s, hn::MulAdd(g, hn::Sub(one, s), one));
    grad_up = hn::Mul(grad, hn::Mul(g, s));
    grad_gate = hn::Mul(hn::Mul(grad, u), slope);
  };
  V grad_gate, grad_up;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    gradients(simd::load(d, dy + i), simd::load(d, gate + i), simd::load(d, up + i), grad_gate,
              grad_up);
    simd::store(d, grad_gate, dgate + i);
    simd::store(d, grad_up, dup + i);
  }
  if (i == n) return;
  gradients(simd::load_n(d, dy + i, n - i), simd::load_n(d, gate + i, n - i),
            simd::load_n(d, up + i, n - i), grad_gate, grad_up);
  simd::store_n(d, grad_gate, dgate + i, n - i);
  simd::store_n(d, grad_up, dup + i, n - i);
}

void swiglu_backward_row(DType dtype, void* dgate, void* dup, const void* dy, const void* gate,
                         const void* up, std::size_t n) {
  simd::dispatch_computed(dtype, "swiglu_backward", [&]<typename T>(TypeTag<T>) HWY_ATTR {
    swiglu_backward_typed(static_cast<T*>(dgate), static_cast<T*>(dup), static_cast<const T*>(dy),
                          static_cast<const T*>(gate), static_cast<const T*>(up), n);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(binary_row);
HWY_EXPORT(swiglu_row);
HWY_EXPORT(swiglu_backward_row);

std::byte* at(const TensorView& view, std::int64_t offset) {
  return view.as<std::byte>() + offset * static_cast<std::int64_t>(dtype_size(view.dtype));
}

bool is_short_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

bool is_dense_or_single(std::int64_t stride) { return stride == 0 || stride == 1; }

template <typename T>
T binary_value(BinaryOp op, T a, T b) {
  switch (op) {
    case BinaryOp::kAdd: return a + b;
    case BinaryOp::kSub: return a - b;
    case BinaryOp::kMul: return a * b;
    case BinaryOp::kDiv: return a / b;
  }
  return a;
}

// Doubles and integers of one dtype, any strides.
template <typename T>
void binary_plain(Threads threads, BinaryOp op, const StridedLoop<3>& loop, T* y, const T* a,
                  const T* b) {
  for_each_row(threads, loop, [&](const auto& offsets, std::int64_t n) {
    T* to = y + offsets[0];
    const T* left = a + offsets[1];
    const T* right = b + offsets[2];
    for (std::int64_t i = 0; i < n; ++i)
      to[i * loop.row_stride(0)] = static_cast<T>(
          binary_value<T>(op, left[i * loop.row_stride(1)], right[i * loop.row_stride(2)]));
  });
}

// Integer division by zero would end the process; it gives 0 here.
template <typename T>
void divide_integers(Threads threads, const StridedLoop<3>& loop, T* y, const T* a, const T* b) {
  for_each_row(threads, loop, [&](const auto& offsets, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const T divisor = b[offsets[2] + i * loop.row_stride(2)];
      const T dividend = a[offsets[1] + i * loop.row_stride(1)];
      y[offsets[0] + i * loop.row_stride(0)] =
          divisor == 0 ? T{0} : static_cast<T>(dividend / divisor);
    }
  });
}

template <typename T>
void binary_integers(Threads threads, BinaryOp op, const StridedLoop<3>& loop, const TensorView& y,
                     const TensorView& a, const TensorView& b) {
  if (op == BinaryOp::kDiv)
    divide_integers(threads, loop, y.as<T>(), a.as<const T>(), b.as<const T>());
  else
    binary_plain(threads, op, loop, y.as<T>(), a.as<const T>(), b.as<const T>());
}

// Mixed dtypes, or floating rows that are not dense: through float32, or float64 where one takes
// part.
template <typename F>
void binary_staged(Threads threads, BinaryOp op, const StridedLoop<3>& loop, const TensorView& y,
                   const TensorView& a, const TensorView& b) {
  for_each_row(threads, loop, [&](const auto& offsets, std::int64_t n) {
    F left[kStagingSize], right[kStagingSize];
    for (std::int64_t i = 0; i < n; i += kStagingSize) {
      const std::int64_t count = std::min(kStagingSize, n - i);
      gather(left, a, offsets[1] + i * loop.row_stride(1), loop.row_stride(1), count);
      gather(right, b, offsets[2] + i * loop.row_stride(2), loop.row_stride(2), count);
      for (std::int64_t j = 0; j < count; ++j) left[j] = binary_value<F>(op, left[j], right[j]);
      scatter(left, y, offsets[0] + i * loop.row_stride(0), loop.row_stride(0), count);
    }
  });
}

void binary_slow(Threads threads, BinaryOp op, const StridedLoop<3>& loop, const TensorView& y,
                 const TensorView& a, const TensorView& b) {
  const bool same = y.dtype == a.dtype && y.dtype == b.dtype;
  if (same && y.dtype == DType::kFloat64)
    return binary_plain(threads, op, loop, y.as<double>(), a.as<const double>(),
                        b.as<const double>());
  if (same && y.dtype == DType::kInt64)
    return binary_integers<std::int64_t>(threads, op, loop, y, a, b);
  if (same && y.dtype == DType::kInt32)
    return binary_integers<std::int32_t>(threads, op, loop, y, a, b);
  if (same && y.dtype == DType::kUInt8)
    return binary_integers<std::uint8_t>(threads, op, loop, y, a, b);
  if (is_short_float(a.dtype) && is_short_float(b.dtype))
    return binary_staged<float>(threads, op, loop, y, a, b);
  binary_staged<double>(threads, op, loop, y, a, b);
}

template <typename T>
void where_typed(Threads threads, const TensorView& y, const TensorView& condition,
                 const TensorView& a, const TensorView& b) {
  const auto loop = make_strided_loop<4>({&y, &condition, &a, &b});
  for_each_row(threads, loop, [&](const auto& offsets, std::int64_t n) {
    T* to = y.as<T>() + offsets[0];
    const std::uint8_t* choice = condition.as<const std::uint8_t>() + offsets[1];
    const T* left = a.as<const T>() + offsets[2];
    const T* right = b.as<const T>() + offsets[3];
    for (std::int64_t i = 0; i < n; ++i)
      to[i * loop.row_stride(0)] = choice[i * loop.row_stride(1)] != 0
                                       ? left[i * loop.row_stride(2)]
                                       : right[i * loop.row_stride(3)];
  });
}

template <typename T>
void triangle_typed(Threads threads, const TensorView& y, const TensorView& x, bool upper,
                    std::int64_t diagonal) {
  const int rows_dim = y.ndim() - 2;
  const std::int64_t columns = y.shape.back();
  const std::int64_t rows = y.size(rows_dim);
  std::int64_t matrices = 1;
  for (int d = 0; d < rows_dim; ++d) matrices *= y.size(d);
  const std::int64_t grain =
      std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(columns, 1));
  parallel_for(threads, matrices * rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t row = r % rows;
      std::int64_t rest = r / rows;
      std::int64_t y_at = row * y.stride(rows_dim);
      std::int64_t x_at = row * x.stride(rows_dim);
      for (int d = rows_dim - 1; d >= 0; --d) {
        y_at += rest % y.size(d) * y.stride(d);
        x_at += rest % y.size(d) * x.stride(d);
        rest /= y.size(d);
      }
      for (std::int64_t c = 0; c < columns; ++c) {
        const bool kept = upper ? c - row >= diagonal : c - row <= diagonal;
        y.as<T>()[y_at + c * y.stride(rows_dim + 1)] =
            kept ? x.as<const T>()[x_at + c * x.stride(rows_dim + 1)] : T{};
      }
    }
  });
}

// Calls fn with an unsigned type of the element's size, for calls that only move elements.
template <typename Fn>
void dispatch_size(DType dtype, Fn&& fn) {
  switch (dtype_size(dtype)) {
    case 1: return fn(TypeTag<std::uint8_t>{});
    case 2: return fn(TypeTag<std::uint16_t>{});
    case 4: return fn(TypeTag<std::uint32_t>{});
    default: return fn(TypeTag<std::uint64_t>{});
  }
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

void swiglu_staged(Threads threads, const StridedLoop<3>& loop, const TensorView& y,
                   const TensorView& gate, const TensorView& up) {
  for_each_row(threads, loop, [&](const auto& offsets, std::int64_t n) {
    double g[kStagingSize], u[kStagingSize];
    for (std::int64_t i = 0; i < n; i += kStagingSize) {
      const std::int64_t count = std::min(kStagingSize, n - i);
      gather(g, gate, offsets[1] + i * loop.row_stride(1), loop.row_stride(1), count);
      gather(u, up, offsets[2] + i * loop.row_stride(2), loop.row_stride(2), count);
      for (std::int64_t j = 0; j < count; ++j) g[j] *= sigmoid(g[j]) * u[j];
      scatter(g, y, offsets[0] + i * loop.row_stride(0), loop.row_stride(0), count);
    }
  });
}

void swiglu_backward_staged(Threads threads, const StridedLoop<5>& loop,
                            const std::array<const TensorView*, 5>& views) {
  for_each_row(threads, loop, [&](const auto& offsets, std::int64_t n) {
    double buffers[3][kStagingSize];
    const auto& [grad, gate, up] = buffers;
    double grad_gate[kStagingSize], grad_up[kStagingSize];
    for (std::int64_t i = 0; i < n; i += kStagingSize) {
      const std::int64_t count = std::min(kStagingSize, n - i);
      const auto position = [&](std::size_t k) { return offsets[k] + i * loop.row_stride(k); };
      for (std::size_t k = 0; k < 3; ++k)
        gather(buffers[k], *views[k + 2], position(k + 2), loop.row_stride(k + 2), count);
      for (std::int64_t j = 0; j < count; ++j) {
        const double s = sigmoid(gate[j]);
        grad_up[j] = grad[j] * gate[j] * s;
        grad_gate[j] = grad[j] * up[j] * s * (1.0 + gate[j] * (1.0 - s));
      }
      scatter(grad_gate, *views[0], position(0), loop.row_stride(0), count);
      scatter(grad_up, *views[1], position(1), loop.row_stride(1), count);
    }
  });
}

}  // namespace

void CpuBackend::binary(const KernelContext& context, BinaryOp op, const TensorView& y,
                        const TensorView& a, const TensorView& b) {
  if (y.numel() == 0) return;
  const auto loop = make_strided_loop<3>({&y, &a, &b});
  const bool fast = y.dtype == a.dtype && y.dtype == b.dtype && is_short_float(y.dtype) &&
                    loop.row_stride(0) == 1 && is_dense_or_single(loop.row_stride(1)) &&
                    is_dense_or_single(loop.row_stride(2));
  if (!fast) return binary_slow(context.threads, op, loop, y, a, b);
  const bool stream = y.bytes() >= kStreamingBytes && y.data != a.data && y.data != b.data;
  for_each_row(context.threads, loop, [&](const auto& offsets, std::int64_t n) {
    HWY_DYNAMIC_DISPATCH(binary_row)
    (op, y.dtype, stream, at(y, offsets[0]), at(a, offsets[1]), loop.row_stride(1),
     at(b, offsets[2]), loop.row_stride(2), n);
    finish_streaming(stream);
  });
}

void CpuBackend::where(const KernelContext& context, const TensorView& y,
                       const TensorView& condition, const TensorView& a, const TensorView& b) {
  if (y.numel() == 0) return;
  if (y.dtype != a.dtype || y.dtype != b.dtype)
    throw Unimplemented(fmt::format("where: dtypes {}, {} and {} must be the same",
                                    dtype_name(y.dtype), dtype_name(a.dtype), dtype_name(b.dtype)));
  dispatch_size(y.dtype, [&]<typename T>(TypeTag<T>) {
    where_typed<T>(context.threads, y, condition, a, b);
  });
}

void CpuBackend::triangle(const KernelContext& context, const TensorView& y, const TensorView& x,
                          bool upper, std::int64_t diagonal) {
  if (y.numel() == 0) return;
  dispatch_size(y.dtype, [&]<typename T>(TypeTag<T>) {
    triangle_typed<T>(context.threads, y, x, upper, diagonal);
  });
}

void CpuBackend::swiglu(const KernelContext& context, const TensorView& y, const TensorView& gate,
                        const TensorView& up) {
  if (y.numel() == 0) return;
  const auto loop = make_strided_loop<3>({&y, &gate, &up});
  bool dense = y.dtype == gate.dtype && y.dtype == up.dtype && is_short_float(y.dtype);
  for (std::size_t k = 0; k < 3; ++k) dense = dense && loop.row_stride(k) == 1;
  if (!dense) return swiglu_staged(context.threads, loop, y, gate, up);
  const bool stream = y.bytes() >= kStreamingBytes && y.data != gate.data && y.data != up.data;
  for_each_row(context.threads, loop, [&](const auto& offsets, std::int64_t n) {
    HWY_DYNAMIC_DISPATCH(swiglu_row)
    (y.dtype, stream, at(y, offsets[0]), at(gate, offsets[1]), at(up, offsets[2]), n);
    finish_streaming(stream);
  });
}

void CpuBackend::swiglu_backward(const KernelContext& context, const TensorView& dgate,
                                 const TensorView& dup, const TensorView& dy,
                                 const TensorView& gate, const TensorView& up) {
  if (dgate.numel() == 0) return;
  const std::array<const TensorView*, 5> views{&dgate, &dup, &dy, &gate, &up};
  const auto loop = make_strided_loop<5>(views);
  bool dense = is_short_float(dgate.dtype);
  for (std::size_t k = 0; k < 5; ++k)
    dense = dense && loop.row_stride(k) == 1 && views[k]->dtype == dgate.dtype;
  if (!dense) return swiglu_backward_staged(context.threads, loop, views);
  for_each_row(context.threads, loop, [&](const auto& offsets, std::int64_t n) {
    HWY_DYNAMIC_DISPATCH(swiglu_backward_row)
    (dgate.dtype, at(dgate, offsets[0]), at(dup, offsets[1]), at(dy, offsets[2]),
     at(gate, offsets[3]), at(up, offsets[4]), n);
  });
}

}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
