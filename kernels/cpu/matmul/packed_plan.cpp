// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/packed_plan.h"

#include <algorithm>
#include <cstdint>

#include "kernels/base/integer_math.h"
#include "kernels/cpu/simd/bf16_pair.h"
#include "kernels/cpu/span_workspace.h"

namespace meshloom::kernels::cpu {
namespace {

// Tiles are no smaller: packing would cost as much as multiplying.
constexpr std::int64_t kLeastRows = 96;
constexpr std::int64_t kLeastColumns = 96;
// So many tasks for each thread let fast threads take over from slow ones.
constexpr std::int64_t kTasksPerThread = 4;

// Cycles to pack one element, measured on Zen 5: as it lies, or transposed.
constexpr double kCopied = 0.15;
constexpr double kTransposed = 0.5;

bool readable_in_place(const Gemm& g, const PackedTypes& types) {
  if (g.a.transposed || types.tiles) return false;
  if (types.operands == DType::kFloat32) return true;
  // By pairs, of which none lies across two rows.
  return g.k % 2 == 0 && g.a.ld % 2 == 0 && reinterpret_cast<std::uintptr_t>(g.a.data) % 4 == 0;
}

// The grid of tiles with enough tasks that packs least: every column of tiles packs all of a, every
// row of tiles all of b.
void choose_tiles(PackedPlan& plan, const Gemm& g, Threads threads) {
  const PackedShape& shape = packed_shape(plan.types);
  const std::int64_t wanted = threads.count > 1
                                  ? std::clamp<std::int64_t>(g.m * g.n * g.k / shape.least_work, 1,
                                                             threads.count * kTasksPerThread)
                                  : 1;
  // Tile registers read rows as they lie, vectors columns.
  const bool turned = g.a.transposed == plan.types.tiles;
  const double a_cost = plan.packs_a ? (turned ? kTransposed : kCopied) : 0.0;
  const double b_cost = g.b.transposed ? kTransposed : kCopied;
  const std::int64_t most_rows = divide_up(g.m, kLeastRows);
  const std::int64_t most_columns = divide_up(g.n, kLeastColumns);
  double best_cost = 0.0;
  std::int64_t best_tasks = 0;
  for (std::int64_t rows = divide_up(g.m, shape.most_rows); rows <= most_rows; ++rows) {
    const std::int64_t columns = std::clamp<std::int64_t>(divide_up(wanted, rows), 1, most_columns);
    const std::int64_t tasks = std::min(rows * columns, wanted);
    const double cost = a_cost * static_cast<double>(columns) * static_cast<double>(g.m) +
                        b_cost * static_cast<double>(rows) * static_cast<double>(g.n);
    if (tasks > best_tasks || (tasks == best_tasks && cost < best_cost)) {
      best_tasks = tasks;
      best_cost = cost;
      plan.row_tiles = rows;
      plan.column_tiles = columns;
    }
  }
  plan.tile_rows = round_up(divide_up(g.m, plan.row_tiles), shape.rows);
  plan.tile_columns = round_up(divide_up(g.n, plan.column_tiles), shape.columns);
  plan.row_tiles = divide_up(g.m, plan.tile_rows);
  plan.column_tiles = divide_up(g.n, plan.tile_columns);
}

}  // namespace

PackedPlan plan_packed_product(const Gemm& g, const PackedTypes& types, Threads threads) {
  const std::int64_t per = types.operands == DType::kBFloat16 ? kPerElement<Bf16Pair> : 1;
  const PackedShape& shape = packed_shape(types);
  PackedPlan plan;
  plan.types = types;
  const std::int64_t elements = divide_up(g.k, per);
  const std::int64_t parts = divide_up(elements, shape.most_depth);
  const std::int64_t part = round_up(divide_up(elements, parts), shape.least_depth);
  plan.part_depth = part * per;
  plan.packs_a = !readable_in_place(g, types);
  plan.keeps_sums = types.y != DType::kFloat32 && part < elements;
  choose_tiles(plan, g, threads);
  plan.workers = static_cast<int>(std::min<std::int64_t>(std::max(threads.count, 1), plan.tasks()));
  // Rows that do not fill a register tile are always packed.
  plan.a_bytes = piece_bytes<float>((plan.packs_a ? plan.tile_rows : shape.rows) * part);
  plan.b_bytes = piece_bytes<float>(std::min(plan.tile_columns, shape.block_columns) * part);
  if (plan.keeps_sums) plan.sum_bytes = piece_bytes<float>(plan.tile_rows * shape.block_columns);
  return plan;
}

}  // namespace meshloom::kernels::cpu
