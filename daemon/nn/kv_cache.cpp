// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/kv_cache.h"

#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::nn {
namespace {

constexpr int kPositions = 2;

/// The layout with every rank's positions whole and nothing Partial, for so many positions.
planner::SpecPtr with_positions(const planner::DTensorSpec& spec, std::int64_t positions) {
  Shape shape = spec.shape();
  shape[kPositions] = positions;
  planner::Placements placements = spec.placements();
  std::vector<planner::DimOrderPtr> orders;
  for (int d = 0; d < spec.mesh().ndim(); ++d) {
    planner::Placement& placement = placements[static_cast<std::size_t>(d)];
    const bool kept = placement.is_shard() && placement.dim != kPositions;
    if (!kept) placement = planner::Placement::replicate();
    if (spec.has_dim_orders()) orders.push_back(kept ? spec.dim_order(d) : nullptr);
  }
  planner::ShardOrder shard_order = spec.shard_order();
  std::erase_if(shard_order, [](const auto& entry) { return entry.tensor_dim == kPositions; });
  return std::make_shared<const planner::DTensorSpec>(spec.mesh_ptr(), std::move(placements), shape,
                                                      std::move(shard_order), std::move(orders));
}

/// Whether two layouts differ in sizes at most.
bool sharded_alike(const planner::DTensorSpec& a, const planner::DTensorSpec& b) {
  if (a.placements() != b.placements() || a.shard_order() != b.shard_order()) return false;
  for (int d = 0; d < a.mesh().ndim(); ++d)
    if (!planner::same_order(a.dim_order(d), b.dim_order(d))) return false;
  return true;
}

}  // namespace

KvCache::KvCache(ExecutionContext& context, const Sizes& sizes, DType dtype)
    : context_(context),
      sizes_(sizes),
      dtype_(dtype),
      layers_(static_cast<std::size_t>(sizes.layers)) {
  check(sizes.max_length > 0, "key-value cache: length {} must be positive", sizes.max_length);
}

Tensor KvCache::append_to(Memory& memory, const Tensor& next) const {
  Tensor local = next;
  LayoutEngine* engine = next.has_layout() ? next.layout()->engine : nullptr;
  if (engine != nullptr) {
    if (!memory.first) memory.first = with_positions(*next.layout()->spec, next.size(kPositions));
    const bool kept = sharded_alike(*next.layout()->spec, *memory.first);
    local = local_of(
        kept ? next
             : engine->redistribute(next, with_positions(*memory.first, next.size(kPositions))));
  }
  const std::int64_t end = length_ + local.size(kPositions);
  if (!memory.values)
    memory.values =
        empty(context_, {local.size(0), local.size(1), sizes_.max_length, sizes_.head_dim}, dtype_);
  copy_into(ops::slice(memory.values, kPositions, length_, end), local);
  const Tensor all = ops::slice(memory.values, kPositions, 0, end);
  if (engine == nullptr) return all;
  return with_layout(all, engine->intern(with_positions(*memory.first, end)), *engine);
}

KvCache::KeyValue KvCache::append(std::int64_t layer, const Tensor& k, const Tensor& v) {
  Layer& memory = layers_.at(static_cast<std::size_t>(layer));
  return {append_to(memory.k, k), append_to(memory.v, v)};
}

void KvCache::advance(std::int64_t positions) {
  check_room(positions);
  length_ += positions;
}

void KvCache::check_room(std::int64_t positions) const {
  check(length_ + positions <= sizes_.max_length,
        "decode: {} more positions after {} do not fit a cache of {}", positions, length_,
        sizes_.max_length);
}

}  // namespace meshloom::nn
