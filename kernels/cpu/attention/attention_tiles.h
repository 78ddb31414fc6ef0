// SPDX-License-Identifier: Apache-2.0
// Attention's products by the tile registers of AMX, of bfloat16 pairs. Included once per target
// after hwy/highway.h (the guard toggles).
//
// 32 rows by 32 columns at a time: a panel of queries by a third of a tile's keys. Blocks reach
// over several units, so operands and probabilities that no mask lets through are zeros here.
#if defined(MESHLOOM_KERNELS_CPU_ATTENTION_TILES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_KERNELS_CPU_ATTENTION_TILES_H_
#undef MESHLOOM_KERNELS_CPU_ATTENTION_TILES_H_
#else
#define MESHLOOM_KERNELS_CPU_ATTENTION_TILES_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention/attention_problem.h"
#include "kernels/cpu/attention/attention_products.h"
#include "kernels/cpu/matmul/packed_panels.h"
#include "kernels/cpu/simd/matrix_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace tile {

inline constexpr std::int64_t kBlock = 2 * kTileSide;
inline constexpr int kBlocks = kTile / kBlock;
static_assert(kPanel == kBlock && kTile % kBlock == 0);

/// Tells whether any of the 32 keys from `block` on is seen by a query of the panel.
inline bool block_used(const TileMap& map, int block, int panel) {
  for (std::int64_t unit = block * kBlock / kUnit;
       unit < map.key_units && unit * kUnit < (block + 1) * kBlock; ++unit)
    if (map.used[unit][panel] != 0) return true;
  return false;
}

/// Clears one unit of keys by one panel of queries in pairs, as ScoreRows writes them: all zeros.
inline void clear_rows(Bf16Pair* out) {
  for (std::int64_t k = 0; k < kUnit; ++k)
    std::fill_n(out + k * (kTile / 2), kPanel / 2, Bf16Pair{});
}
inline void clear_row_pairs(Bf16Pair* out) {
  for (std::int64_t k = 0; k < kUnit / 2; ++k) std::fill_n(out + k * kTile, kPanel, Bf16Pair{});
}
/// The tile kernels multiply by vectors, for operands of this element.
template <typename ElementType>
struct VectorProducts {
  using Element = ElementType;
  static constexpr bool kTiles = false;
};

#if HWY_TARGET == HWY_AVX3
/// They multiply by tile registers, of the CPU or their model. Depths are in pairs, multiples of
/// 16; ld.. are elements from a row to the next.
template <typename Registers>
class TileProducts {
 public:
  using Element = Bf16Pair;
  static constexpr bool kTiles = true;

  /// c [32, 32] = a [32, depth] b [depth, 32].
  void multiply(std::int64_t depth, const Bf16Pair* a, std::int64_t lda, const Bf16Pair* b,
                std::int64_t ldb, float* c, std::int64_t ldc) {
    multiply_tiles<2, 2>(registers_, rows_of(depth, a, lda, b, ldb), nullptr, 0, c, ldc);
  }

  /// c [32, columns] += a [32, depth] b [depth, columns]; columns a multiple of 32.
  void add(std::int64_t depth, const Bf16Pair* a, std::int64_t lda, const Bf16Pair* b,
           std::int64_t ldb, float* c, std::int64_t ldc, std::int64_t columns) {
    add_columns(rows_of(depth, a, lda, b, ldb), c, ldc, columns);
  }

  /// Does the same of a tile's worth of a that lies turned: [kTile / 2 pairs][32] with rows of
  /// kTile.
  void add_turned(const Bf16Pair* a, const Bf16Pair* b, std::int64_t ldb, float* c,
                  std::int64_t ldc, std::int64_t columns) {
    constexpr std::int64_t kDepth = kTile / 2;
    alignas(64) Bf16Pair turned[kBlock * kDepth];
    for (std::int64_t row = 0; row < kBlock; row += kTileSide)
      for (std::int64_t pair = 0; pair < kDepth; pair += kTileSide)
        packed::transpose_lines<kTileSide>(
            reinterpret_cast<const std::uint8_t*>(a + pair * kTile + row),
            kTile * static_cast<std::int64_t>(sizeof(Bf16Pair)),
            &turned[row * kDepth + pair * kTileSide].bits, kTileSide);
    add_columns({kDepth, turned, kTileSide, kTileSide * kTileSide, kTileSide * kDepth, b, ldb}, c,
                ldc, columns);
  }

 private:
  static TileOperands rows_of(std::int64_t depth, const Bf16Pair* a, std::int64_t lda,
                              const Bf16Pair* b, std::int64_t ldb) {
    return {depth, a, lda, kTileSide, kTileSide * lda, b, ldb};
  }

  void add_columns(TileOperands in, float* c, std::int64_t ldc, std::int64_t columns) {
    for (std::int64_t j = 0; j < columns; j += kBlock, in.b += kBlock)
      multiply_tiles<2, 2>(registers_, in, c + j, ldc, c + j, ldc);
  }

  Registers registers_;
};
#endif

}  // namespace tile
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
