// SPDX-License-Identifier: Apache-2.0
// Small matrix products for the attention kernels, for one target, of float32 or of bfloat16 pairs.
// Included once per target after hwy/highway.h (the guard toggles).
#if defined(MESHLOOM_KERNELS_CPU_ATTENTION_PRODUCTS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_KERNELS_CPU_ATTENTION_PRODUCTS_H_
#undef MESHLOOM_KERNELS_CPU_ATTENTION_PRODUCTS_H_
#else
#define MESHLOOM_KERNELS_CPU_ATTENTION_PRODUCTS_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/cpu/attention/attention_problem.h"
#include "kernels/cpu/simd/register_products.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace tile {

/// ScoreRows writes tiles of scores in float32 as operands of further products.
template <typename Element>
struct ScoreRows;

#if HWY_TARGET == HWY_AVX3
template <>
struct ScoreRows<Bf16Pair> {
  /// Narrows one unit of keys by one panel of queries of a score tile, in pairs of queries: rows of
  /// out are kTile / 2 pairs apart.
  static HWY_INLINE void narrow_rows(const float* HWY_RESTRICT tile, Bf16Pair* HWY_RESTRICT out) {
    const F32 d;
    static_assert(kPanel == 32);
    for (std::int64_t k = 0; k < kUnit; ++k)
      _mm512_storeu_si512(out + k * (kTile / 2),
                          Operand<Bf16Pair>::narrow(hn::LoadU(d, tile + k * kTile),
                                                    hn::LoadU(d, tile + k * kTile + 16)));
  }

  /// Does the same in pairs of keys: rows of out are kTile pairs apart, kUnit / 2 of them.
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
        const __m512i both = Operand<Bf16Pair>::narrow(hn::LoadU(d, at), hn::LoadU(d, at + kTile));
        _mm512_storeu_si512(out + k / 2 * kTile + q, _mm512_permutexvar_epi16(order, both));
      }
  }
};
#endif

// Sets c[m][..] = c[m][..] * factor[m] + product; factor null: 1.
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
