// SPDX-License-Identifier: Apache-2.0
// Small matrix products in registers for the attention kernels, for one target, of float32 or of
// bfloat16 pairs. Included once per target after hwy/highway.h (the guard toggles).
#if defined(MESHLOOM_KERNELS_CPU_ATTENTION_PRODUCTS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_KERNELS_CPU_ATTENTION_PRODUCTS_H_
#undef MESHLOOM_KERNELS_CPU_ATTENTION_PRODUCTS_H_
#else
#define MESHLOOM_KERNELS_CPU_ATTENTION_PRODUCTS_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/cpu/attention_problem.h"

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

/// An operand's elements as lanes of V: `load` a vector of them, `spread` one over all lanes, and
/// `multiply_add` two such vectors to float32 sums.
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

  // 32 values rounded to bfloat16, to nearest even: `low` first.
  static HWY_INLINE __m512i narrow(V low, V high) {
    __m512i out;
    __asm__("vcvtne2ps2bf16 %[low], %[high], %[out]"
            : [out] "=v"(out)
            : [high] "v"(high.raw), [low] "v"(low.raw));
    return out;
  }

  /// One unit of keys by one panel of queries of a score tile, in pairs of queries: rows of out are
  /// kTile / 2 pairs apart.
  static HWY_INLINE void narrow_rows(const float* HWY_RESTRICT tile, Bf16Pair* HWY_RESTRICT out) {
    const F32 d;
    static_assert(kPanel == 32);
    for (std::int64_t k = 0; k < kUnit; ++k)
      _mm512_storeu_si512(out + k * (kTile / 2), narrow(hn::LoadU(d, tile + k * kTile),
                                                        hn::LoadU(d, tile + k * kTile + 16)));
  }

  /// The same in pairs of keys: rows of out are kTile pairs apart, kUnit / 2 of them.
  static HWY_INLINE void narrow_row_pairs(const float* HWY_RESTRICT tile,
                                          Bf16Pair* HWY_RESTRICT out) {
    const F32 d;
    alignas(64) static constexpr std::uint16_t kAlternately[32] = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i order = _mm512_load_si512(kAlternately);
    for (std::int64_t k = 0; k < kUnit; k += 2)
      for (std::int64_t q = 0; q < kPanel; q += lanes()) {
        const float* at = tile + k * kTile + q;
        const __m512i both = narrow(hn::LoadU(d, at), hn::LoadU(d, at + kTile));
        _mm512_storeu_si512(out + k / 2 * kTile + q, _mm512_permutexvar_epi16(order, both));
      }
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

// As above with rows of a `row_step` apart and their elements next to each other. Three rows share
// a base pointer, which x86 addresses as base, base + step and base + 2 step: a pointer per row
// would not fit its registers.
template <int kRows, int kVectors, typename Element>
HWY_INLINE void multiply_rows(std::int64_t depth, const Element* HWY_RESTRICT a,
                              std::int64_t row_step, const Element* HWY_RESTRICT b,
                              std::int64_t ldb, V (&acc)[kRows][kVectors]) {
  static_assert(kRows % 3 == 0);
  const std::int64_t n = lanes();
  const Element* base[kRows / 3];
#pragma GCC unroll 4
  for (int g = 0; g < kRows / 3; ++g) base[g] = a + 3 * g * row_step;
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
    for (int g = 0; g < kRows / 3; ++g) ++base[g];
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

// c[m][..] = c[m][..] * factor[m] + product; factor null: 1.
template <int kVectors, int kRowStep, int kDepthStep, bool kScaled, typename Element>
HWY_INLINE void multiply_add_block(std::int64_t depth, const Element* a, const Element* b,
                                   std::int64_t ldb, float* c, std::int64_t ldc,
                                   const float* factor) {
  const F32 d;
  const std::int64_t n = lanes();
  V acc[kRegisterRows][kVectors];
  clear(acc);
  multiply<kRegisterRows, kVectors, kRowStep, kDepthStep>(depth, a, b, ldb, acc);
#pragma GCC unroll 16
  for (int m = 0; m < kRegisterRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* at = c + m * ldc + v * n;
      const V old = hn::LoadU(d, at);
      hn::StoreU(
          kScaled ? hn::MulAdd(old, hn::Set(d, factor[m]), acc[m][v]) : hn::Add(old, acc[m][v]), d,
          at);
    }
  }
}

/// c [kUnit, columns] = c * factor (per row; kScaled) + a [kUnit, depth] b [depth, columns];
/// columns is a whole number of vectors.
template <int kRowStep, int kDepthStep, bool kScaled, typename Element>
HWY_INLINE void multiply_add(std::int64_t depth, const Element* a, const Element* b,
                             std::int64_t ldb, float* c, std::int64_t ldc, std::int64_t columns,
                             const float* factor) {
  const std::int64_t n = lanes();
  for (int m = 0; m < kUnit; m += kRegisterRows) {
    const float* f = kScaled ? factor + m : nullptr;
    std::int64_t j = 0;
    for (; j + 2 * n <= columns; j += 2 * n)
      multiply_add_block<2, kRowStep, kDepthStep, kScaled>(depth, a + m * kRowStep, b + j, ldb,
                                                           c + m * ldc + j, ldc, f);
    if (j < columns)
      multiply_add_block<1, kRowStep, kDepthStep, kScaled>(depth, a + m * kRowStep, b + j, ldb,
                                                           c + m * ldc + j, ldc, f);
  }
}

}  // namespace tile
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
