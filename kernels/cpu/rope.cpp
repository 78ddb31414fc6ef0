// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: a call of Backend on the CPU.
#include "kernels/cpu/cpu_backend.h"

#include "kernels/cpu/simd/dispatch.h"
#include "kernels/cpu/simd/streaming.h"
#include "kernels/cpu/strided_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/simd.h"

#ifndef MESHLOOM_KERNELS_CPU_ROPE_ROWS_
#define MESHLOOM_KERNELS_CPU_ROPE_ROWS_
namespace meshloom::kernels::cpu {
namespace {
struct RopeRows {
  DType dtype;
  void* y;
  const void* x;
  std::int64_t y_step, x_step;
  const float* cosine;
  const float* sine;
  std::int64_t table_step;
  float sign;
  std::int64_t half;
  std::int64_t count;
  bool stream;  // every row and half of y is aligned to 64 bytes
};
}  // namespace
}  // namespace meshloom::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using simd::FloatTag;
using V = hn::Vec<FloatTag>;

// y[i] = x[i] cos[i] - x[i + half] sin[i], y[i + half] = x[i + half] cos[i] + x[i] sin[i], with sin
// times `sign`.
struct Pair {
  V low, high;
};

HWY_INLINE Pair rotate_vectors(V a, V b, V cosine, V sine) {
  return {hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), hn::MulAdd(a, sine, hn::Mul(b, cosine))};
}

template <class T>
HWY_INLINE void rotate(T* y, const T* x, const float* cosine, const float* sine, float sign,
                       std::size_t half, bool stream) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  const V s = hn::Set(d, sign);
  const auto pair_at = [&](std::size_t i) HWY_ATTR {
    return rotate_vectors(simd::load(d, x + i), simd::load(d, x + half + i),
                          simd::load(d, cosine + i), hn::Mul(s, simd::load(d, sine + i)));
  };
  std::size_t i = 0;
  if constexpr (std::is_same_v<T, float>) {
    for (; stream && i + lanes <= half; i += lanes) {
      const Pair pair = pair_at(i);
      hn::Stream(pair.low, d, y + i);
      hn::Stream(pair.high, d, y + half + i);
    }
  }
  for (; i + lanes <= half; i += lanes) {
    const Pair pair = pair_at(i);
    simd::store(d, pair.low, y + i);
    simd::store(d, pair.high, y + half + i);
  }
  if (i == half) return;
  const std::size_t n = half - i;
  const Pair pair =
      rotate_vectors(simd::load_n(d, x + i, n), simd::load_n(d, x + half + i, n),
                     simd::load_n(d, cosine + i, n), hn::Mul(s, simd::load_n(d, sine + i, n)));
  simd::store_n(d, pair.low, y + i, n);
  simd::store_n(d, pair.high, y + half + i, n);
}

// `count` rows, each a step (in elements) from the last; table_step is 0 where all have one
// position.
void rotate_rows(const RopeRows& rows) {
  dispatch_float(rows.dtype, "rope", [&]<typename T>(TypeTag<T>) HWY_ATTR {
    for (std::int64_t r = 0; r < rows.count; ++r)
      rotate(static_cast<T*>(rows.y) + r * rows.y_step,
             static_cast<const T*>(rows.x) + r * rows.x_step, rows.cosine + r * rows.table_step,
             rows.sine + r * rows.table_step, rows.sign, rows.half, rows.stream);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(rotate_rows);

void rotate_rows_double(const RopeRows& rows) {
  for (std::int64_t r = 0; r < rows.count; ++r) {
    double* y = static_cast<double*>(rows.y) + r * rows.y_step;
    const double* x = static_cast<const double*>(rows.x) + r * rows.x_step;
    for (std::int64_t i = 0; i < rows.half; ++i) {
      const double cosine = rows.cosine[r * rows.table_step + i];
      const double sine = static_cast<double>(rows.sign) * rows.sine[r * rows.table_step + i];
      const double a = x[i];
      const double b = x[rows.half + i];
      y[i] = a * cosine - b * sine;
      y[rows.half + i] = b * cosine + a * sine;
    }
  }
}

std::int64_t position_of(const RopeOptions& options, std::int64_t b, std::int64_t s) {
  if (!options.positions.defined()) return options.position_offset + s;
  const TensorView& positions = options.positions;
  const std::int64_t position =
      positions.as<const std::int64_t>()[b * positions.stride(0) + s * positions.stride(1)];
  return position >= 0 && position < options.cos.size(0) ? position : 0;
}

void check_position(std::int64_t position, std::int64_t count) {
  if (position >= 0 && position < count) [[likely]]
    return;
  throw OutOfRange(
      fmt::format("rope: position {} is not in [0, {}), the rows of the table", position, count));
}

struct RopeCall {
  TensorView y, x;
  RopeOptions options;
  bool stream = false;

  // Rows from (b, h, s) on; the caller sets the steps and the count.
  RopeRows rows_at(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t count) const {
    const std::int64_t position = position_of(options, b, s);
    check_position(position, options.cos.size(0));
    const auto size = static_cast<std::int64_t>(dtype_size(x.dtype));
    RopeRows rows{};
    rows.dtype = x.dtype;
    rows.y = y.as<std::byte>() + (b * y.stride(0) + h * y.stride(1) + s * y.stride(2)) * size;
    rows.x = x.as<const std::byte>() + (b * x.stride(0) + h * x.stride(1) + s * x.stride(2)) * size;
    rows.cosine = options.cos.as<const float>() + position * options.cos.stride(0);
    rows.sine = options.sin.as<const float>() + position * options.sin.stride(0);
    rows.sign = options.inverse ? -1.0f : 1.0f;
    rows.half = x.size(3) / 2;
    rows.count = count;
    rows.stream = stream;
    return rows;
  }
};

void run(const RopeRows& rows) {
  if (rows.dtype == DType::kFloat64)
    rotate_rows_double(rows);
  else
    HWY_DYNAMIC_DISPATCH(rotate_rows)(rows);
}

// All heads of one token at a time: they are neighbours in memory where the layout is [B, S, H, D].
void rotate_tokens(const RopeCall& call, std::int64_t begin, std::int64_t end) {
  const std::int64_t length = call.x.size(2);
  for (std::int64_t token = begin; token < end; ++token) {
    RopeRows rows = call.rows_at(token / length, 0, token % length, call.x.size(1));
    rows.y_step = call.y.stride(1);
    rows.x_step = call.x.stride(1);
    run(rows);
  }
}

// Runs of tokens of one head, positions counting up; [begin, end) counts rows of [B, H, S].
void rotate_heads(const RopeCall& call, std::int64_t begin, std::int64_t end) {
  const std::int64_t length = call.x.size(2);
  const std::int64_t heads = call.x.size(1);
  for (std::int64_t row = begin; row < end;) {
    const std::int64_t s = row % length;
    const std::int64_t count = std::min(length - s, end - row);
    const std::int64_t head = row / length;
    RopeRows rows = call.rows_at(head / heads, head % heads, s, count);
    check_position(position_of(call.options, 0, s + count - 1), call.options.cos.size(0));
    rows.y_step = call.y.stride(2);
    rows.x_step = call.x.stride(2);
    rows.table_step = call.options.cos.stride(0);
    run(rows);
    row += count;
  }
}

// Large, not in place, and every row and half of it aligned to any target's vectors.
bool can_stream(const TensorView& y, const TensorView& x) {
  constexpr std::int64_t kAlignment = 64 / sizeof(float);
  bool aligned =
      reinterpret_cast<std::uintptr_t>(y.data) % 64 == 0 && y.size(3) / 2 % kAlignment == 0;
  for (int d = 0; d < 3; ++d) aligned = aligned && y.stride(d) % kAlignment == 0;
  return aligned && y.dtype == DType::kFloat32 && y.data != x.data && y.bytes() >= kStreamingBytes;
}

}  // namespace

void CpuBackend::rope(const KernelContext& context, const TensorView& y, const TensorView& x,
                      const RopeOptions& options) {
  if (x.numel() == 0) return;
  const RopeCall call{y, x, options, can_stream(y, x)};
  const std::int64_t row_grain = std::max<std::int64_t>(1, kElementGrain / x.size(3));
  const bool by_head = !options.positions.defined() && x.stride(1) > x.stride(2) &&
                       options.cos.stride(0) == options.sin.stride(0);
  if (by_head)
    return parallel_for(context.threads, x.size(0) * x.size(1) * x.size(2), row_grain,
                        [&](std::int64_t begin, std::int64_t end) {
                          rotate_heads(call, begin, end);
                          finish_streaming(call.stream);
                        });
  parallel_for(context.threads, x.size(0) * x.size(2),
               std::max<std::int64_t>(1, row_grain / x.size(1)),
               [&](std::int64_t begin, std::int64_t end) {
                 rotate_tokens(call, begin, end);
                 finish_streaming(call.stream);
               });
}

}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
