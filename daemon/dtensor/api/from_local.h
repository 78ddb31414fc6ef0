// SPDX-License-Identifier: Apache-2.0
// A tensor with a layout from what each rank holds already.
#pragma once

#include <optional>

#include "daemon/dtensor/distributed_engine.h"

namespace meshloom::dtensor {

struct FromLocalOptions {
  /// Compares dtype, requires_grad, global shape, strides and placements over the ranks (one
  /// all_gather), and gives every replica the values of the first one (a broadcast per R mesh dim).
  bool run_check = false;
  /// The global ones, both or none. None: every rank's shard is taken to be as large as this one's,
  /// so uneven shards need them. Strides in elements.
  std::optional<Shape> shape = std::nullopt;
  std::optional<Strides> strides = std::nullopt;
  planner::ShardOrder order = {};
};

/// Every rank of the mesh calls it; a rank outside gives any tensor of the dtype and holds an empty
/// one. The gradient of `local` comes back as this rank's part of the result's, Partial replaced by
/// Replicate; run_check does not change that. Throws InvalidArgument for another number of
/// placements than mesh dims, strides of another number of dims than the shape, and a local shape
/// that is not this rank's; with run_check, on all ranks alike, naming those with an error, and
/// if they differ. Without it uneven shards without a shape are not noticed.
Tensor from_local(const Tensor& local, DistributedEngine& engine,
                  const planner::Placements& placements, const FromLocalOptions& options = {});
/// Makes a tensor of any layout, as that with placements does. The layout says the global shape and
/// in what order a dim is sharded.
Tensor from_local(const Tensor& local, DistributedEngine& engine, const planner::SpecPtr& layout);

}  // namespace meshloom::dtensor
