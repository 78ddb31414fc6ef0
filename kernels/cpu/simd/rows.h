// SPDX-License-Identifier: Apache-2.0
// Loops over dense rows for Highway kernels: elementwise maps with tails and non-temporal stores.
// Included once per target after hwy/highway.h (the guard toggles).
#if defined(MESHLOOM_KERNELS_CPU_ROWS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_KERNELS_CPU_ROWS_H_
#undef MESHLOOM_KERNELS_CPU_ROWS_H_
#else
#define MESHLOOM_KERNELS_CPU_ROWS_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <type_traits>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/simd/dispatch.h"
#include "kernels/cpu/simd/simd.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace simd {

/// Returns the number of elements before y + i is aligned to a vector; they fit one partial vector.
template <class T>
HWY_INLINE std::size_t lanes_to_alignment(const T* y) {
  const std::size_t bytes = hn::Lanes(FloatTag()) * sizeof(float);
  const std::size_t past = reinterpret_cast<std::uintptr_t>(y) % bytes;
  return past == 0 ? 0 : (bytes - past) / sizeof(T);
}

/// Fills y[0..n) with f(i, count): the vector of elements from i on, of which `count` are asked
/// for. `stream` writes past the caches (float only): for outputs that no cache would keep; the
/// caller ends its part with finish_streaming.
template <class T, class F>
HWY_INLINE void write_row(bool stream, T* y, std::size_t n, const F& f) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  if constexpr (std::is_same_v<T, float>) {
    if (stream && n >= 4 * lanes) {
      i = lanes_to_alignment(y);
      if (i != 0) store_n(d, f(std::size_t{0}, i), y, i);
      for (; i + lanes <= n; i += lanes) hn::Stream(f(i, lanes), d, y + i);
    }
  }
  if constexpr (kStoresTwo<T>) {
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      const auto low = f(i, lanes);
      store_two(d, low, f(i + lanes, lanes), y + i);
    }
  }
  for (; i + lanes <= n; i += lanes) store(d, f(i, lanes), y + i);
  if (i < n) store_n(d, f(i, n - i), y + i, n - i);
}

/// Loads `count` elements at p, a whole vector or fewer.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_up_to(D d, const T* p, std::size_t count) {
  return count == hn::Lanes(d) ? load(d, p) : load_n(d, p, count);
}

/// y[i] = f(in[i]...) for i in [0, n), f taking and giving float32 vectors; y may be one of the
/// inputs. `stream` as in write_row.
template <class T, class F, class... In>
HWY_INLINE void map_row(bool stream, T* y, std::size_t n, const F& f, const In*... in) {
  const FloatTag d;
  write_row(stream, y, n, [d, &f, in...](std::size_t i, std::size_t count) HWY_ATTR {
    return f(load_up_to(d, in + i, count)...);
  });
}

/// Does what dispatch_float does, for kernels that compute: bfloat16 is NativeBFloat16 where the
/// CPU has it.
template <typename Fn>
HWY_INLINE void dispatch_computed(DType dtype, const char* op, Fn&& fn) {
#if HWY_TARGET == HWY_AVX3
  if (dtype == DType::kBFloat16 && bfloat16_dot_products()) return fn(TypeTag<NativeBFloat16>{});
#endif
  dispatch_float(dtype, op, fn);
}

/// y[i] = f(in[i]...) as map_row, and returns the sum of y before it was rounded to T.
template <class T, class F, class... In>
HWY_INLINE float map_and_sum_row(T* y, std::size_t n, const F& f, const In*... in) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<FloatTag> s0 = hn::Zero(d), s1 = s0;
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = f(load(d, in + i)...);
    const auto b = f(load(d, in + i + lanes)...);
    s0 = hn::Add(s0, a);
    s1 = hn::Add(s1, b);
    store(d, a, y + i);
    store(d, b, y + i + lanes);
  }
  for (; i < n; i += lanes) {
    const std::size_t count = n - i < lanes ? n - i : lanes;
    if (count == lanes) {
      const auto a = f(load(d, in + i)...);
      s0 = hn::Add(s0, a);
      store(d, a, y + i);
    } else {
      const auto a = f(load_n(d, in + i, count)...);
      s0 = hn::Add(s0, hn::IfThenElseZero(hn::FirstN(d, count), a));
      store_n(d, a, y + i, count);
    }
  }
  return sum_lanes(d, hn::Add(s0, s1));
}

/// Returns the sum of f(in[i]...) over i in [0, n), in float32 over four vectors of partial sums.
template <class F, class... In>
HWY_INLINE float reduce_row(std::size_t n, const F& f, const In*... in) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<FloatTag> s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, f(load(d, in + i)...));
    s1 = hn::Add(s1, f(load(d, in + i + lanes)...));
    s2 = hn::Add(s2, f(load(d, in + i + 2 * lanes)...));
    s3 = hn::Add(s3, f(load(d, in + i + 3 * lanes)...));
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::Add(s0, f(load(d, in + i)...));
  if (i < n) {
    const auto rest = f(load_n(d, in + i, n - i)...);
    s1 = hn::Add(s1, hn::IfThenElseZero(hn::FirstN(d, n - i), rest));
  }
  return sum_lanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

/// Returns the largest of x[0..n) and `at_least`. The default, -FLT_MAX, lets exp(x - max) be 0
/// where all are -inf.
template <class T>
HWY_INLINE float row_max(const T* x, std::size_t n, float at_least = -3.402823466e38f) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto lowest = hn::Set(d, at_least);
  auto m0 = lowest, m1 = lowest, m2 = lowest, m3 = lowest;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    m0 = hn::Max(m0, load(d, x + i));
    m1 = hn::Max(m1, load(d, x + i + lanes));
    m2 = hn::Max(m2, load(d, x + i + 2 * lanes));
    m3 = hn::Max(m3, load(d, x + i + 3 * lanes));
  }
  for (; i < n; i += lanes) {
    const std::size_t count = n - i < lanes ? n - i : lanes;
    const auto v = count == lanes ? load(d, x + i) : load_n(d, x + i, count);
    m0 = hn::Max(m0, hn::IfThenElse(hn::FirstN(d, count), v, lowest));
  }
  return max_lanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3)));
}

/// Computes two sums in one pass: f(in[i]..., a, b) sets the terms a and b of `first` and `second`.
template <class F, class... In>
HWY_INLINE void reduce_row_twice(std::size_t n, float& first, float& second, const F& f,
                                 const In*... in) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<FloatTag> a0 = hn::Zero(d), a1 = a0, b0 = a0, b1 = a0, a, b;
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    f(load(d, in + i)..., a, b);
    a0 = hn::Add(a0, a);
    b0 = hn::Add(b0, b);
    f(load(d, in + i + lanes)..., a, b);
    a1 = hn::Add(a1, a);
    b1 = hn::Add(b1, b);
  }
  for (; i < n; i += lanes) {
    const std::size_t count = n - i < lanes ? n - i : lanes;
    if (count == lanes)
      f(load(d, in + i)..., a, b);
    else
      f(load_n(d, in + i, count)..., a, b);
    const auto valid = hn::FirstN(d, count);
    a0 = hn::Add(a0, hn::IfThenElseZero(valid, a));
    b0 = hn::Add(b0, hn::IfThenElseZero(valid, b));
  }
  first = sum_lanes(d, hn::Add(a0, a1));
  second = sum_lanes(d, hn::Add(b0, b1));
}

}  // namespace simd
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
