// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/distribute.h"

#include "daemon/tensor/ops/shape.h"

namespace meshloom::conformance {
namespace {

Tensor window(const Tensor& global, const std::vector<planner::ShardRange>& ranges) {
  Tensor part = global.detach();
  for (std::size_t d = 0; d < ranges.size(); ++d)
    part = ops::slice(part, static_cast<std::int64_t>(d), ranges[d].begin, ranges[d].end);
  return part;
}

Shape shape_of(const std::vector<planner::ShardRange>& ranges) {
  Shape shape;
  for (const planner::ShardRange& range : ranges) shape.push_back(range.size());
  return shape;
}

}  // namespace

std::vector<planner::ShardRange> local_ranges(const Shape& shape, const planner::MeshLayout& mesh,
                                              int rank, const planner::Placements& placements) {
  std::vector<planner::ShardRange> ranges;
  for (const std::int64_t size : shape) ranges.push_back({0, size});
  const std::vector<int> at = mesh.coordinates(rank);
  for (std::size_t d = 0; d < placements.size(); ++d) {
    if (!placements[d].is_shard()) continue;
    planner::ShardRange& range = ranges[static_cast<std::size_t>(placements[d].dim)];
    const planner::ShardRange cut =
        planner::shard_range(range.size(), mesh.dim_size(static_cast<int>(d)), at[d]);
    range = {range.begin + cut.begin, range.begin + cut.end};
  }
  return ranges;
}

Tensor local_part(const Tensor& global, const RankContext& rank,
                  const planner::Placements& placements) {
  const NoGradGuard no_grad(rank.context);
  const auto ranges = local_ranges(global.shape(), rank.mesh, rank.rank(), placements);
  const Tensor part = empty(rank.context, shape_of(ranges), global.dtype());
  copy_into(part, window(global, ranges));
  return part;
}

Tensor gather_parts(const Tensor& part, const Shape& global, const RankContext& rank,
                    const planner::Placements& placements) {
  const NoGradGuard no_grad(rank.context);
  std::vector<std::vector<planner::ShardRange>> ranges;
  std::vector<Tensor> parts;
  std::vector<TensorView> views;
  for (int r = 0; r < rank.world.size(); ++r) {
    ranges.push_back(local_ranges(global, rank.mesh, r, placements));
    parts.push_back(empty(rank.context, shape_of(ranges.back()), part.dtype()));
    views.push_back(parts.back().view());
  }
  rank.world.all_gather(views, ops::contiguous(part.detach()).view())->wait_host();
  const Tensor whole = empty(rank.context, global, part.dtype());
  for (std::size_t r = 0; r < parts.size(); ++r) copy_into(window(whole, ranges[r]), parts[r]);
  return whole;
}

}  // namespace meshloom::conformance
