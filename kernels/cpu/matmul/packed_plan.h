// SPDX-License-Identifier: Apache-2.0
// How packed_product breaks a product up: pure numbers, the same on every machine.
#pragma once

#include <cstddef>

#include "kernels/base/parallel_for.h"
#include "kernels/cpu/matmul/gemm.h"

namespace meshloom::kernels::cpu {

/// PackedTypes has dtypes of a product: operands are float32, or bfloat16 where the CPU has dot
/// products of it (bfloat16_dot_products()); y is float32 or, of bfloat16 operands, bfloat16.
struct PackedTypes {
  DType operands = DType::kFloat32, y = DType::kFloat32;
  /// If true, products of bfloat16 operands go by the tile registers of AMX, or their model where
  /// the CPU has none.
  bool tiles = false;
};

/// So much is computed at a time.
struct PackedShape {
  std::int64_t rows, columns;  ///< of y whose sums are in registers
  std::int64_t block_columns;  ///< of b, packed at once: they stay in the second-level cache
  std::int64_t least_depth;    ///< elements along k are padded with zeros to a multiple of it
  std::int64_t most_depth;     ///< elements along k that are summed before sums go to memory
  std::int64_t most_rows;      ///< of a tile of y
  std::int64_t least_work;     ///< products of a task: it takes longer than waking a thread for it
};
/// Three vectors per row. 8 rows of a fill half of a first-level cache of 48 KiB, a block of b less
/// than half of a second-level cache of 1 MiB, where a tile's sums stay as well.
inline constexpr PackedShape kVectorShape{8, 48, 144, 1, 768, 512, 1 << 19};
/// Two by two tile registers. They multiply so fast that b is to be packed for many rows of a;
/// a block of b fills less than half of a second-level cache of 2 MiB.
inline constexpr PackedShape kMatrixShape{32, 32, 384, 16, 512, 1024, 1 << 22};

constexpr const PackedShape& packed_shape(const PackedTypes& types) {
  return types.tiles ? kMatrixShape : kVectorShape;
}

/// Tasks are tiles of y; a task computes one part of k after the other.
struct PackedPlan {
  PackedTypes types;
  std::int64_t row_tiles = 1, column_tiles = 1;
  std::int64_t tile_rows = 0, tile_columns = 0;  ///< most of a tile: whole register tiles
  std::int64_t part_depth = 0;                   ///< values of k in each part but the last
  int workers = 1;
  bool packs_a = false;     ///< a cannot be read where it lies
  bool keeps_sums = false;  ///< sums of former parts do not fit y's dtype
  std::size_t a_bytes = 0, b_bytes = 0, sum_bytes = 0;  ///< of each worker

  std::int64_t tasks() const { return row_tiles * column_tiles; }
  std::size_t worker_bytes() const { return a_bytes + b_bytes + sum_bytes; }
  std::size_t scratch_bytes() const { return worker_bytes() * static_cast<std::size_t>(workers); }
};

/// beta is 0 or 1 in `gemm`, alpha 1.
PackedPlan plan_packed_product(const Gemm& gemm, const PackedTypes& types, Threads threads);

}  // namespace meshloom::kernels::cpu
