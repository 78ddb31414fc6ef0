// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/kv_cache.h"

#include <algorithm>

#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "planner/attention/cache_blocks.h"

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

/// The layout with its positions, in dim `dim`, over a mesh dim on which they are whole.
planner::SpecPtr sharded_by_position(const planner::DTensorSpec& spec, int dim, int mesh_dim,
                                     planner::DimOrderPtr order) {
  planner::Placements placements = spec.placements();
  placements[static_cast<std::size_t>(mesh_dim)] = planner::Placement::shard(dim);
  std::vector<planner::DimOrderPtr> orders(placements.size());
  orders[static_cast<std::size_t>(mesh_dim)] = std::move(order);
  return planner::with_placements(spec, std::move(placements), std::move(orders));
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
  length_ = begun_ = 0;
  orders_.clear();
  for (Layer& layer : layers_) layer.k.begin = layer.v.begin = 0;
}

void KvCache::make_room(Memory& memory, const Tensor& like, std::int64_t first, std::int64_t end,
                        std::int64_t window) const {
  if (memory.values && count_kept({memory.begin, end}) <= memory.values.size(kPositions)) return;
  const std::int64_t positions = std::max(kept_positions(window, sizes_.max_length), end - first);
  // Other ranks read them where they lie when a prompt is computed together.
  const MemoryKind kind = sizes_.sharing.ranks > 1 ? MemoryKind::kSymmetric : MemoryKind::kDevice;
  const Memory larger{
      empty(context_,
            {like.size(0), like.size(1), count_kept({first, first + positions}), sizes_.head_dim},
            dtype_, kind),
      first, memory.first};
  if (memory.values && length_ > first)
    copy_into(kept(larger, {first, length_}), kept(memory, {first, length_}));
  memory = larger;
}

std::int64_t KvCache::count_kept(planner::ShardRange positions) const {
  return planner::count_kept_by_rank(sizes_.sharing.rank, sizes_.sharing.ranks, positions);
}

Tensor KvCache::kept(const Memory& memory, planner::ShardRange positions) const {
  const std::int64_t first = count_kept({memory.begin, positions.begin});
  return ops::slice(memory.values, kPositions, first, first + count_kept(positions));
}

const planner::DimOrderPtr& KvCache::order_of(planner::ShardRange positions) {
  planner::DimOrderPtr& order = orders_[positions.begin];
  // A pass that failed may have left one of another length.
  if (order == nullptr || order->size() != positions.size()) {
    std::vector<planner::IndexRanges> by_rank;
    for (int rank = 0; rank < sizes_.sharing.ranks; ++rank)
      by_rank.push_back(planner::kept_by_rank(rank, sizes_.sharing.ranks, positions));
    order = planner::DimOrder::listed(positions.size(), std::move(by_rank));
  }
  return order;
}

planner::SpecPtr KvCache::layout_of(const planner::DTensorSpec& first,
                                    planner::ShardRange positions) {
  planner::SpecPtr whole = with_positions(first, positions.size());
  if (sizes_.sharing.ranks == 1) return whole;
  return sharded_by_position(*whole, kPositions, sizes_.sharing.mesh_dim, order_of(positions));
}

std::int64_t KvCache::pass_positions(std::int64_t least) const {
  return planner::even_pass(sizes_.sharing.ranks, least);
}

bool KvCache::shared(const planner::DTensorSpec& spec, int dim) const {
  const CacheRanks& sharing = sizes_.sharing;
  return sharing.ranks > 1 && spec.placement(sharing.mesh_dim) == planner::Placement::shard(dim);
}

Tensor KvCache::shard_pass(const Tensor& ids) {
  const CacheRanks& sharing = sizes_.sharing;
  const planner::ShardRange positions{length_, length_ + ids.size(1)};
  if (sharing.ranks == 1 || !planner::shares_pass(sharing.ranks, positions)) return ids;
  const TensorLayout& layout = *ids.layout();
  return layout.engine->redistribute(
      ids, sharded_by_position(*layout.spec, 1, sharing.mesh_dim, order_of(positions)));
}

Tensor KvCache::last_position(const Tensor& x) const {
  const std::int64_t positions = x.size(1);
  const CacheRanks& sharing = sizes_.sharing;
  const TensorLayout* layout = x.has_layout() ? x.layout().get() : nullptr;
  if (layout == nullptr || !shared(*layout->spec, 1) || layout->spec->sharding_dims(1).size() > 1)
    return ops::slice(x, 1, positions - 1, positions);
  // The last that each rank has, of which one is that of the pass: less to send than all of x.
  const Tensor& local = layout->local;
  const std::int64_t held = local.size(1);
  const Tensor own = held > 0 ? ops::slice(local, 1, held - 1, held)
                              : zeros(context_, {1, 1, local.size(2)}, local.dtype());
  std::vector<planner::DimOrderPtr> orders;
  for (int d = 0; layout->spec->has_dim_orders() && d < layout->spec->mesh().ndim(); ++d)
    orders.push_back(d == sharing.mesh_dim ? nullptr : layout->spec->dim_order(d));
  const auto spec = std::make_shared<const planner::DTensorSpec>(
      layout->spec->mesh_ptr(), layout->spec->placements(), Shape{1, sharing.ranks, x.size(2)},
      layout->spec->shard_order(), std::move(orders));
  planner::Placements whole = spec->placements();
  whole[static_cast<std::size_t>(sharing.mesh_dim)] = planner::Placement::replicate();
  const Tensor all =
      layout->engine->redistribute(with_layout(own, layout->engine->intern(spec), *layout->engine),
                                   planner::with_placements(*spec, std::move(whole)));
  const int last = planner::rank_of_position(length_ + positions - 1, sharing.ranks);
  return ops::slice(all, 1, last, last + 1);
}

Tensor KvCache::local_part(Memory& memory, const Tensor& next) {
  if (!next.has_layout()) {
    check_internal(sizes_.sharing.ranks == 1,
                   "key-value cache: ranks that share its positions append keys without a layout");
    return next;
  }
  const TensorLayout& layout = *next.layout();
  const std::int64_t positions = next.size(kPositions);
  if (!memory.first) memory.first = with_positions(*layout.spec, positions);
  const planner::SpecPtr wanted = shared(*layout.spec, kPositions)
                                      ? layout_of(*memory.first, {length_, length_ + positions})
                                      : with_positions(*memory.first, positions);
  return local_of(sharded_alike(*layout.spec, *wanted) ? next
                                                       : layout.engine->redistribute(next, wanted));
}

Tensor KvCache::append_to(Memory& memory, const Tensor& next, std::int64_t window) {
  LayoutEngine* engine = next.has_layout() ? next.layout()->engine : nullptr;
  const CacheRanks& sharing = sizes_.sharing;
  const Tensor local = local_part(memory, next);
  const std::int64_t end = length_ + next.size(kPositions);
  const std::int64_t first = window == 0 ? 0 : std::max<std::int64_t>(length_ - window + 1, 0);
  make_room(memory, local, first, end, window);
  if (engine != nullptr && shared(*next.layout()->spec, kPositions)) {
    if (local.size(kPositions) > 0) copy_into(kept(memory, {length_, end}), local);
  } else {
    for (const auto& [from, to] :
         planner::kept_by_rank(sharing.rank, sharing.ranks, {length_, end}))
      copy_into(kept(memory, {length_ + from, length_ + to}),
                ops::slice(local, kPositions, from, to));
  }
  const Tensor seen = kept(memory, {first, end});
  if (engine == nullptr) return seen;
  return with_layout(seen, engine->intern(layout_of(*memory.first, {first, end})), *engine);
}

KvCache::KeyValue KvCache::append(std::int64_t layer, const Tensor& k, const Tensor& v) {
  Layer& memory = layers_.at(static_cast<std::size_t>(layer));
  const std::int64_t window = sizes_.windows[static_cast<std::size_t>(layer)];
  return {append_to(memory.k, k, window), append_to(memory.v, v, window)};
}

void KvCache::advance(std::int64_t positions) {
  check_room(positions);
  length_ += positions;
  orders_.clear();
}

std::int64_t KvCache::bytes() const {
  std::int64_t elements = 0;
  for (const Layer& layer : layers_)
    for (const Memory* memory : {&layer.k, &layer.v})
      if (memory->values) elements += memory->values.numel();
  return elements * static_cast<std::int64_t>(dtype_size(dtype_));
}

void KvCache::check_room(std::int64_t positions) const {
  check(length_ + positions <= sizes_.max_length,
        "decode: {} more positions after {} do not fit a cache of {}", positions, length_,
        sizes_.max_length);
}

}  // namespace meshloom::nn
