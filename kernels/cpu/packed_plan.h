// SPDX-License-Identifier: Apache-2.0
// How packed_product breaks a product up: pure numbers, the same on every machine.
#pragma once

#include <cstddef>

#include "kernels/base/parallel_for.h"
#include "kernels/cpu/gemm.h"

namespace meshloom::kernels::cpu {

/// Dtypes of a product: operands are float32, or bfloat16 where the CPU has dot products of it
/// (bfloat16_dot_products()); y is float32 or, of bfloat16 operands, bfloat16.
struct PackedTypes {
  DType operands = DType::kFloat32, y = DType::kFloat32;
};

/// A register tile: rows of a by columns of b, with three vectors per row.
inline constexpr std::int64_t kPackedRows = 8;
inline constexpr std::int64_t kPackedColumns = 48;
/// Columns of b that are packed at once: they fill less than half of a second-level cache of 1 MiB.
inline constexpr std::int64_t kBlockColumns = 3 * kPackedColumns;

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
