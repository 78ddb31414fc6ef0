// SPDX-License-Identifier: Apache-2.0
// From a global tensor to a rank's part of it and back, for Replicate and Shard placements.
#pragma once

#include "planner/shard.h"
#include "tests/conformance/case.h"

namespace meshloom::conformance {

/// What `rank` holds of each dim of a tensor of `shape`: the ceil rule, applied one mesh dim after
/// the other. Partial placements count as Replicate.
std::vector<planner::ShardRange> local_ranges(const Shape& shape, const planner::MeshLayout& mesh,
                                              int rank, const planner::Placements& placements);

/// A copy of this rank's part, without a gradient.
Tensor local_part(const Tensor& global, const RankContext& rank,
                  const planner::Placements& placements);

/// The global tensor from everyone's parts; every rank calls it and gets it.
Tensor gather_parts(const Tensor& part, const Shape& global, const RankContext& rank,
                    const planner::Placements& placements);

}  // namespace meshloom::conformance
