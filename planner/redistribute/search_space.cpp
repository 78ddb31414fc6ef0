// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/search_space.h"

#include "kernels/base/error.h"
#include "kernels/base/integer_math.h"

namespace meshloom::planner {
namespace {

constexpr int kBitsPerDim = LayoutState::kBitsPerDim;
constexpr int kPlaceBit = 4;
constexpr int kOrderBit = 7;
constexpr std::uint64_t kDimMask = (1U << kBitsPerDim) - 1U;

HoldCode code_of(const Placement& placement) {
  switch (placement.kind) {
    case PlacementKind::kReplicate: return kHoldReplicate;
    case PlacementKind::kShard: return hold_shard(placement.dim);
    case PlacementKind::kPartial: return hold_partial(placement.partial);
  }
  return kHoldReplicate;
}

Placement placement_of(HoldCode code) {
  if (is_shard_code(code)) return Placement::shard(shard_dim_of(code));
  if (is_partial_code(code)) return Placement::partial_of(static_cast<PartialOp>(code - 1));
  return Placement::replicate();
}

const DimOrderPtr kNoOrder;

}  // namespace

unsigned DimList::mask() const {
  unsigned mask = 0;
  for (const int dim : *this) mask |= 1U << dim;
  return mask;
}

int LayoutState::last_sharding_dim(int tensor_dim) const {
  const auto d = static_cast<std::size_t>(tensor_dim);
  return shards[d] == 0 ? -1 : sharding_dim[d][shards[d] - 1U];
}

bool LayoutState::is_last_sharding_dim(int mesh_dim) const {
  const HoldCode code = hold[static_cast<std::size_t>(mesh_dim)];
  return is_shard_code(code) && last_sharding_dim(shard_dim_of(code)) == mesh_dim;
}

void LayoutState::set_hold(int mesh_dim, HoldCode code) {
  const auto m = static_cast<std::size_t>(mesh_dim);
  key += (static_cast<std::uint64_t>(code) - hold[m]) << (kBitsPerDim * mesh_dim);
  hold[m] = code;
}

void LayoutState::push_shard(int mesh_dim, int tensor_dim, DimOrderChoice order_choice) {
  const auto m = static_cast<std::size_t>(mesh_dim), d = static_cast<std::size_t>(tensor_dim);
  hold[m] = hold_shard(tensor_dim);
  order[m] = order_choice;
  key |= (static_cast<std::uint64_t>(hold[m]) | static_cast<std::uint64_t>(shards[d]) << kPlaceBit |
          static_cast<std::uint64_t>(order_choice) << kOrderBit)
         << (kBitsPerDim * mesh_dim);
  sharding_dim[d][shards[d]++] = static_cast<std::uint8_t>(mesh_dim);
  shard_mask[d] = static_cast<std::uint8_t>(shard_mask[d] | 1U << mesh_dim);
}

void LayoutState::pop_shard(int mesh_dim) {
  const auto m = static_cast<std::size_t>(mesh_dim);
  const auto d = static_cast<std::size_t>(shard_dim_of(hold[m]));
  --shards[d];
  shard_mask[d] = static_cast<std::uint8_t>(shard_mask[d] & ~(1U << mesh_dim));
  hold[m] = kHoldReplicate;
  order[m] = DimOrderChoice::kPlain;
  key &= ~(kDimMask << (kBitsPerDim * mesh_dim));
}

LayoutState LayoutState::from_key(std::uint64_t key, int mesh_dims) {
  LayoutState state;
  state.key = key;
  for (int m = 0; m < mesh_dims; ++m, key >>= kBitsPerDim) {
    const auto i = static_cast<std::size_t>(m);
    state.hold[i] = static_cast<HoldCode>(key & 15U);
    state.order[i] = static_cast<DimOrderChoice>((key >> kOrderBit) & 3U);
    if (!is_shard_code(state.hold[i])) continue;
    const auto d = static_cast<std::size_t>(shard_dim_of(state.hold[i]));
    state.sharding_dim[d][(key >> kPlaceBit) & 7U] = static_cast<std::uint8_t>(m);
    ++state.shards[d];
    state.shard_mask[d] = static_cast<std::uint8_t>(state.shard_mask[d] | 1U << m);
  }
  return state;
}

SearchSpace::SearchSpace(SpecPtr from, SpecPtr to) : from_(std::move(from)), to_(std::move(to)) {
  for (int m = 0; m < mesh().ndim(); ++m) {
    if (mesh().dim_size(m) == 1) continue;
    if (dims_ == kMaxSearchDims)
      throw InvalidArgument(fmt::format("redistribute: mesh {} has more than {} dims larger than 1",
                                        meshloom::planner::to_string(mesh()), kMaxSearchDims));
    mesh_dims_[static_cast<std::size_t>(dims_)] = m;
    sizes_[static_cast<std::size_t>(dims_++)] = mesh().dim_size(m);
  }
  has_dim_orders_ = from_->has_dim_orders() || to_->has_dim_orders();
  if (!has_dim_orders_) fill_plain_sizes();
  start_ = state_of(*from_, DimOrderChoice::kFrom);
  goal_ = state_of(*to_, DimOrderChoice::kTo);
}

LayoutState SearchSpace::state_of(const DTensorSpec& spec, DimOrderChoice tag) const {
  LayoutState state;
  for (int m = 0; m < dims_; ++m) {
    const HoldCode code = code_of(spec.placement(mesh_dim(m)));
    if (!is_shard_code(code)) state.set_hold(m, code);
  }
  for (const DimShardOrder& entry : spec.shard_order())
    for (const int cutting : entry.mesh_dims)
      for (int m = 0; m < dims_; ++m) {
        if (mesh_dim(m) != cutting) continue;
        const DimOrderPtr& order = spec.dim_order(cutting);
        // An order that both layouts have on this tensor dim goes by one name.
        const bool shared = order && from_->placement(cutting) == spec.placement(cutting) &&
                            from_->dim_order(cutting) &&
                            from_->dim_order(cutting)->digest() == order->digest();
        state.push_shard(m, entry.tensor_dim,
                         !order   ? DimOrderChoice::kPlain
                         : shared ? DimOrderChoice::kFrom
                                  : tag);
      }
  return state;
}

const DimOrderPtr& SearchSpace::order_of(int mesh_dim, DimOrderChoice order) const {
  if (order == DimOrderChoice::kPlain) return kNoOrder;
  const DTensorSpec& spec = order == DimOrderChoice::kFrom ? *from_ : *to_;
  return spec.dim_order(mesh_dims_[static_cast<std::size_t>(mesh_dim)]);
}

bool SearchSpace::offers(int mesh_dim, int tensor_dim, DimOrderChoice order) const {
  if (order == DimOrderChoice::kPlain) return true;
  const LayoutState& state = order == DimOrderChoice::kFrom ? start_ : goal_;
  const auto m = static_cast<std::size_t>(mesh_dim);
  return state.hold[m] == hold_shard(tensor_dim) && state.order[m] == order;
}

bool SearchSpace::offers(const LayoutState& state, int mesh_dim, int tensor_dim,
                         DimOrderChoice order) const {
  if (order == DimOrderChoice::kPlain) return true;
  return offers(mesh_dim, tensor_dim, order) &&
         !rows_meet(state, tensor_dim, *order_of(mesh_dim, order));
}

int SearchSpace::row_dim(const LayoutState& state, int tensor_dim) const {
  const auto d = static_cast<std::size_t>(tensor_dim);
  if (state.shards[d] == 0) return -1;
  const int m = state.sharding_dim[d][0];
  const DimOrderPtr& order = order_of(m, state.order[static_cast<std::size_t>(m)]);
  return order ? order->row_dim() : -1;
}

/// A layout has no dim by rows of a dim that is sharded by rows itself; the two ends may each have
/// one.
bool SearchSpace::rows_meet(const LayoutState& state, int tensor_dim, const DimOrder& order) const {
  if (!order.by_row()) return false;
  if (row_dim(state, order.row_dim()) >= 0) return true;
  for (int d = 0; d < shape().size(); ++d)
    if (row_dim(state, d) == tensor_dim) return true;
  return false;
}

void SearchSpace::fill_plain_sizes() {
  plain_sizes_.reserve(static_cast<std::size_t>(shape().size()) << dims_);
  for (const std::int64_t size : shape())
    for (unsigned mask = 0; mask < 1U << dims_; ++mask) {
      std::int64_t parts = 1;
      for (int m = 0; m < dims_; ++m)
        if ((mask >> m & 1U) != 0) parts *= this->size(m);
      // Shardings by ceil nest: ceil(ceil(n / a) / b) = ceil(n / (a b)).
      plain_sizes_.push_back(divide_up(size, parts));
    }
}

std::int64_t SearchSpace::ordered_size(const LayoutState& state, int tensor_dim) const {
  const auto d = static_cast<std::size_t>(tensor_dim);
  std::int64_t size = shape()[tensor_dim];
  std::int64_t parts = 1;
  for (std::size_t i = 0; i < state.shards[d]; ++i) {
    const int m = state.sharding_dim[d][i];
    const DimOrderPtr& order = order_of(m, state.order[static_cast<std::size_t>(m)]);
    if (order) {
      size = order->largest_part();
    } else {
      parts *= this->size(m);
    }
  }
  return divide_up(size, parts);
}

double SearchSpace::local_elements(const LayoutState& state) const {
  double elements = 1.0;
  for (int d = 0; d < shape().size(); ++d) elements *= static_cast<double>(local_size(state, d));
  return elements;
}

SpecPtr SearchSpace::spec_of(const LayoutState& state) const {
  const auto mesh_dims = static_cast<std::size_t>(mesh().ndim());
  Placements placements(mesh_dims);
  std::vector<DimOrderPtr> orders(has_dim_orders() ? mesh_dims : 0);
  for (int m = 0; m < dims_; ++m) {
    const auto at = static_cast<std::size_t>(mesh_dim(m)), i = static_cast<std::size_t>(m);
    placements[at] = placement_of(state.hold[i]);
    if (has_dim_orders()) orders[at] = order_of(m, state.order[i]);
  }
  ShardOrder shard_order;
  for (int d = 0; d < shape().size(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    if (state.shards[i] < 2) continue;
    DimShardOrder entry{d, {}};
    for (std::size_t c = 0; c < state.shards[i]; ++c)
      entry.mesh_dims.push_back(mesh_dim(state.sharding_dim[i][c]));
    shard_order.push_back(std::move(entry));
  }
  return std::make_shared<const DTensorSpec>(from_->mesh_ptr(), std::move(placements), shape(),
                                             std::move(shard_order), std::move(orders));
}

}  // namespace meshloom::planner
