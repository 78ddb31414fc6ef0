// SPDX-License-Identifier: Apache-2.0
// Vector loads and stores of every floating dtype as float32 lanes. Included once per target after
// hwy/highway.h (the guard toggles).
#if defined(MESHLOOM_KERNELS_CPU_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_KERNELS_CPU_SIMD_H_
#undef MESHLOOM_KERNELS_CPU_SIMD_H_
#else
#define MESHLOOM_KERNELS_CPU_SIMD_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/base/half.h"
#include "kernels/cpu/simd/native_bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace simd {

namespace hn = hwy::HWY_NAMESPACE;

/// FloatTag is the widest float32 vector of the target.
using FloatTag = hn::ScalableTag<float>;

// Room for one vector of any target.
inline constexpr std::size_t kMaxLanes = HWY_MAX_BYTES / sizeof(float);

/// Rounds to nearest even to the upper 16 bits, as bfloat16::from_float; NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> bfloat16_bits(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto bias = hn::Add(hn::And(upper, hn::Set(du, 1)), hn::Set(du, 0x7fff));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, bias));
  const auto quiet = hn::Or(upper, hn::Set(du, 0x40));
  const auto is_nan = hn::IsNaN(v);
  return hn::BitCast(du, hn::IfThenElse(is_nan, hn::BitCast(d, quiet), hn::BitCast(d, rounded)));
}

/// Loads a full vector of elements at p (no alignment needed) as float32.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const bfloat16* p) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<std::uint16_t, D> dh;
  const auto bits = hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float16* p) {
#if HWY_TARGET == HWY_SSE4
  alignas(HWY_MAX_BYTES) float lanes[kMaxLanes];
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = static_cast<float>(p[i]);
  return hn::Load(d, lanes);
#else
  const hn::Rebind<hwy::float16_t, D> dh;
  const hn::Rebind<std::uint16_t, D> du;
  return hn::PromoteTo(d,
                       hn::BitCast(dh, hn::LoadU(du, reinterpret_cast<const std::uint16_t*>(p))));
#endif
}

/// Stores a full vector at p (no alignment needed), rounding to nearest even.
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, float* p) {
  hn::StoreU(v, d, p);
}
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, bfloat16* p) {
  const hn::Rebind<std::uint16_t, D> dh;
  hn::StoreU(hn::TruncateTo(dh, bfloat16_bits(d, v)), dh, reinterpret_cast<std::uint16_t*>(p));
}
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, float16* p) {
#if HWY_TARGET == HWY_SSE4
  // Highway's emulation of the conversion does not round to nearest even.
  alignas(HWY_MAX_BYTES) float lanes[kMaxLanes];
  hn::Store(v, d, lanes);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) p[i] = float16(lanes[i]);
#else
  const hn::Rebind<hwy::float16_t, D> dh;
  const hn::Rebind<std::uint16_t, D> du;
  hn::StoreU(hn::BitCast(du, hn::DemoteTo(dh, v)), du, reinterpret_cast<std::uint16_t*>(p));
#endif
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const NativeBFloat16* p) {
  return load(d, reinterpret_cast<const bfloat16*>(p));
}

/// Tells whether store_two saves work, by rounding and packing two vectors together.
template <class T>
inline constexpr bool kStoresTwo = false;

#if HWY_TARGET == HWY_AVX3
template <>
inline constexpr bool kStoresTwo<bfloat16> = true;
template <>
inline constexpr bool kStoresTwo<NativeBFloat16> = true;

// It is written as assembly, since this target is chosen on CPUs without AVX512_BF16 as well, and
// the compiler refuses to inline its intrinsics into functions that are compiled without it.
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, NativeBFloat16* p) {
  static_assert(hn::MaxLanes(d) == 16);
  __m256i out;
  __asm__("vcvtneps2bf16 %[in], %[out]" : [out] "=v"(out) : [in] "v"(v.raw));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), out);
}

/// Stores `low` at p and `high` after it.
template <class D>
HWY_INLINE void store_two(D, hn::Vec<D> low, hn::Vec<D> high, NativeBFloat16* p) {
  __m512i out;
  __asm__("vcvtne2ps2bf16 %[low], %[high], %[out]"
          : [out] "=v"(out)
          : [high] "v"(high.raw), [low] "v"(low.raw));
  _mm512_storeu_si512(p, out);
}
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> bfloat16_upper(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), odd);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
}
template <class D>
HWY_INLINE void store_two(D d, hn::Vec<D> low, hn::Vec<D> high, bfloat16* p) {
  const hn::Repartition<std::uint16_t, D> dh;
  // The upper halves of the lanes are the odd 16-bit words.
  const auto out = hn::ConcatOdd(dh, hn::BitCast(dh, bfloat16_upper(d, high)),
                                 hn::BitCast(dh, bfloat16_upper(d, low)));
  hn::StoreU(out, dh, reinterpret_cast<std::uint16_t*>(p));
}
#else
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, NativeBFloat16* p) {
  store(d, v, reinterpret_cast<bfloat16*>(p));
}
template <class D, class T>
HWY_INLINE void store_two(D d, hn::Vec<D> low, hn::Vec<D> high, T* p) {
  store(d, low, p);
  store(d, high, p + hn::Lanes(d));
}
#endif

/// Loads the first `count` < Lanes(d) elements; the other lanes are 0.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_n(D d, const T* p, std::size_t count) {
  T lanes[kMaxLanes] = {};
  std::memcpy(lanes, p, count * sizeof(T));
  return load(d, lanes);
}
/// Stores the first `count` < Lanes(d) lanes.
template <class D, class T>
HWY_INLINE void store_n(D d, hn::Vec<D> v, T* p, std::size_t count) {
  T lanes[kMaxLanes];
  store(d, v, lanes);
  std::memcpy(p, lanes, count * sizeof(T));
}

/// Turns the rows of 4 vectors of 4 lanes into columns.
template <class D4, class V4>
HWY_INLINE void transpose(D4 d4, V4& r0, V4& r1, V4& r2, V4& r3) {
  const hn::RebindToUnsigned<hn::Repartition<double, D4>> d2;
  const auto a = hn::BitCast(d2, hn::InterleaveLower(d4, r0, r1));
  const auto b = hn::BitCast(d2, hn::InterleaveLower(d4, r2, r3));
  const auto e = hn::BitCast(d2, hn::InterleaveUpper(d4, r0, r1));
  const auto g = hn::BitCast(d2, hn::InterleaveUpper(d4, r2, r3));
  r0 = hn::BitCast(d4, hn::InterleaveLower(d2, a, b));
  r1 = hn::BitCast(d4, hn::InterleaveUpper(d2, a, b));
  r2 = hn::BitCast(d4, hn::InterleaveLower(d2, e, g));
  r3 = hn::BitCast(d4, hn::InterleaveUpper(d2, e, g));
}

/// Returns the sum and the maximum of all lanes.
template <class D>
HWY_INLINE float sum_lanes(D d, hn::Vec<D> v) {
  return hn::GetLane(hn::SumOfLanes(d, v));
}
template <class D>
HWY_INLINE float max_lanes(D d, hn::Vec<D> v) {
  return hn::GetLane(hn::MaxOfLanes(d, v));
}

}  // namespace simd
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
