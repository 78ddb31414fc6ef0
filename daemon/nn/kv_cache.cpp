// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/kv_cache.h"

#include <algorithm>

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
    : context_(context), sizes_(sizes), dtype_(dtype), layers_(sizes.windows.size()) {
  check(sizes.max_length > 0, "key-value cache: length {} must be positive", sizes.max_length);
}

std::int64_t KvCache::kept_positions(std::int64_t window, std::int64_t max_length) {
  constexpr std::int64_t kLeastRoom = 128;
  return window == 0 ? max_length : std::min(max_length, window + std::max(window, kLeastRoom));
}

void KvCache::clear() {
  length_ = 0;
  for (Layer& layer : layers_) layer.k.begin = layer.v.begin = 0;
}

void KvCache::make_room(Memory& memory, const Tensor& like, std::int64_t first, std::int64_t end,
                        std::int64_t window) const {
  if (memory.values && end - memory.begin <= memory.values.size(kPositions)) return;
  const std::int64_t positions = std::max(kept_positions(window, sizes_.max_length), end - first);
  const Tensor values =
      empty(context_, {like.size(0), like.size(1), positions, sizes_.head_dim}, dtype_);
  const auto kept = [&](const Tensor& x, std::int64_t begin) {
    return ops::slice(x, kPositions, first - begin, length_ - begin);
  };
  if (memory.values && length_ > first)
    copy_into(kept(values, first), kept(memory.values, memory.begin));
  memory.values = values;
  memory.begin = first;
}

Tensor KvCache::append_to(Memory& memory, const Tensor& next, std::int64_t window) const {
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
  const std::int64_t first = window == 0 ? 0 : std::max<std::int64_t>(length_ - window + 1, 0);
  make_room(memory, local, first, end, window);
  const auto held = [&](std::int64_t from) {
    return ops::slice(memory.values, kPositions, from - memory.begin, end - memory.begin);
  };
  copy_into(held(length_), local);
  const Tensor seen = held(first);
  if (engine == nullptr) return seen;
  return with_layout(seen, engine->intern(with_positions(*memory.first, end - first)), *engine);
}

KvCache::KeyValue KvCache::append(std::int64_t layer, const Tensor& k, const Tensor& v) {
  Layer& memory = layers_.at(static_cast<std::size_t>(layer));
  const std::int64_t window = sizes_.windows[static_cast<std::size_t>(layer)];
  return {append_to(memory.k, k, window), append_to(memory.v, v, window)};
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
