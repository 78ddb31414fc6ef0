// SPDX-License-Identifier: Apache-2.0
// Matrix products whose sums stay in registers, for one target, of float32 or of bfloat16 pairs.
// Included once per target after hwy/highway.h (the guard toggles).
#if defined(MESHLOOM_KERNELS_CPU_REGISTER_PRODUCTS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_KERNELS_CPU_REGISTER_PRODUCTS_H_
#undef MESHLOOM_KERNELS_CPU_REGISTER_PRODUCTS_H_
#else
#define MESHLOOM_KERNELS_CPU_REGISTER_PRODUCTS_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/cpu/simd/bf16_pair.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace tile {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using V = hn::Vec<F32>;

// Rows of a register tile: with two vectors per row it fills the registers (32 or 16) but for the
// operands.
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
inline constexpr int kRegisterRows = 12;
#else
inline constexpr int kRegisterRows = 6;
#endif

HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(F32())); }

/// Operand gives an operand's elements as lanes of V: `load` a vector of them, `spread` one over
/// all lanes, and `multiply_add` two such vectors to float32 sums.
template <typename Element>
struct Operand;

template <>
struct Operand<float> {
  static HWY_INLINE V load(const float* p) { return hn::LoadU(F32(), p); }
  static HWY_INLINE V spread(const float* p) { return hn::Set(F32(), *p); }
  static HWY_INLINE V multiply_add(V a, V b, V sum) { return hn::MulAdd(a, b, sum); }
};

#if HWY_TARGET == HWY_AVX3
template <>
struct Operand<Bf16Pair> {
  static HWY_INLINE V load(const Bf16Pair* p) {
    return hn::BitCast(F32(), hn::LoadU(hn::RebindToUnsigned<F32>(), &p->bits));
  }
  static HWY_INLINE V spread(const Bf16Pair* p) {
    return hn::BitCast(F32(), hn::Set(hn::RebindToUnsigned<F32>(), p->bits));
  }
  // Each lane adds both products of its pair in float32. As assembly, since this target is chosen
  // on CPUs without AVX512_BF16 as well: the compiler must not use that extension anywhere else,
  // and refuses to inline its intrinsics into functions that are compiled without it.
  static HWY_INLINE V multiply_add(V a, V b, V sum) {
    __asm__("vdpbf16ps %[b], %[a], %[sum]" : [sum] "+v"(sum.raw) : [a] "v"(a.raw), [b] "v"(b.raw));
    return sum;
  }

  // Returns 32 values rounded to bfloat16, to nearest even: `low` first.
  static HWY_INLINE __m512i narrow(V low, V high) {
    __m512i out;
    __asm__("vcvtne2ps2bf16 %[low], %[high], %[out]"
            : [out] "=v"(out)
            : [high] "v"(high.raw), [low] "v"(low.raw));
    return out;
  }
};
#endif

// acc[m][v] += sum over p < depth of a[m * kRowStep + p * kDepthStep] * b[p * ldb + v * lanes ..].
template <int kRows, int kVectors, int kRowStep, int kDepthStep, typename Element>
HWY_INLINE void multiply(std::int64_t depth, const Element* HWY_RESTRICT a,
                         const Element* HWY_RESTRICT b, std::int64_t ldb,
                         V (&acc)[kRows][kVectors]) {
  const std::int64_t n = lanes();
  for (std::int64_t p = 0; p < depth; ++p) {
    V row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = Operand<Element>::load(b + v * n);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      const V value = Operand<Element>::spread(a + m * kRowStep);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        acc[m][v] = Operand<Element>::multiply_add(value, row[v], acc[m][v]);
    }
    a += kDepthStep;
    b += ldb;
  }
}

// Multiplies as above, but with rows of a `row_step` apart and their elements next to each other.
// Three rows share a base pointer, which x86 addresses as base, base + step and base + 2 step: a
// pointer per row would not fit its registers.
template <int kRows, int kVectors, typename Element>
HWY_INLINE void multiply_rows(std::int64_t depth, const Element* HWY_RESTRICT a,
                              std::int64_t row_step, const Element* HWY_RESTRICT b,
                              std::int64_t ldb, V (&acc)[kRows][kVectors]) {
  constexpr int kBases = (kRows + 2) / 3;
  const std::int64_t n = lanes();
  const Element* base[kBases];
#pragma GCC unroll 4
  for (int g = 0; g < kBases; ++g) base[g] = a + 3 * g * row_step;
  for (std::int64_t p = 0; p < depth; ++p) {
    V row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = Operand<Element>::load(b + v * n);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      const V value = Operand<Element>::spread(base[m / 3] + (m % 3) * row_step);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        acc[m][v] = Operand<Element>::multiply_add(value, row[v], acc[m][v]);
    }
#pragma GCC unroll 4
    for (int g = 0; g < kBases; ++g) ++base[g];
    b += ldb;
  }
}

template <int kRows, int kVectors>
HWY_INLINE void clear(V (&acc)[kRows][kVectors]) {
  const F32 d;
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[m][v] = hn::Zero(d);
}

// Returns the sums of neighbouring lanes: those of `low` in the lower half, those of `high` in the
// upper.
HWY_INLINE V add_neighbours(V low, V high) {
  const F32 d;
  return hn::Add(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low));
}

// Returns the folded lanes. Lane i of the result: the sum of the lanes of v[i], with kCount a power
// of 2 up to lanes(). A vector's lanes are added in the same order whatever kCount is.
template <int kCount>
HWY_INLINE V fold_lanes(const V (&v)[kCount], int lanes_left) {
  if constexpr (kCount == 1) {
    V sum = v[0];
    for (int left = lanes_left; left > 1; left /= 2) sum = add_neighbours(sum, sum);
    return sum;
  } else {
    V half[kCount / 2];
#pragma GCC unroll 16
    for (int i = 0; i < kCount / 2; ++i) half[i] = add_neighbours(v[2 * i], v[2 * i + 1]);
    return fold_lanes(half, lanes_left / 2);
  }
}

// out[i] = the sum of the lanes of v[i], all at once: a third of the instructions of one by one.
template <int kCount>
HWY_INLINE void sum_lanes_of_each(const V (&v)[kCount], float* out) {
  const F32 d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
  constexpr int kPart = std::min(static_cast<int>(std::bit_ceil(unsigned{kCount})), kLanes);
#pragma GCC unroll 16
  for (int first = 0; first < kCount; first += kPart) {
    V part[kPart];
#pragma GCC unroll 16
    for (int i = 0; i < kPart; ++i) part[i] = first + i < kCount ? v[first + i] : hn::Zero(d);
    alignas(64) float sums[kLanes];
    hn::Store(fold_lanes(part, kLanes), d, sums);
    std::copy_n(sums, std::min(kPart, kCount - first), out + first);
  }
}

}  // namespace tile
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
