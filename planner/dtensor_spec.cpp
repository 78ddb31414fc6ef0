// SPDX-License-Identifier: Apache-2.0
#include "planner/dtensor_spec.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/base/hash.h"

namespace meshloom::planner {
namespace {

const std::vector<int> kNoDims;
const DimOrderPtr kNoDimOrder;

// Text is made on failure only: layouts are made and asked for every op.
template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw InvalidArgument(fmt::format(format, std::forward<Args>(args)...));
}

/// `given` checked and completed with the tensor dims it leaves out.
ShardOrder complete_order(const Placements& placements, int ndim, const ShardOrder& given) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    check(given[i].tensor_dim >= 0 && given[i].tensor_dim < ndim,
          "shard order names tensor dim {} of a tensor with {} dims", given[i].tensor_dim, ndim);
    for (std::size_t j = 0; j < i; ++j)
      check(given[j].tensor_dim != given[i].tensor_dim, "shard order names tensor dim {} twice",
            given[i].tensor_dim);
  }
  ShardOrder order;
  for (int d = 0; d < ndim; ++d) {
    std::vector<int> cutting;
    for (std::size_t m = 0; m < placements.size(); ++m)
      if (placements[m].is_shard() && placements[m].dim == d)
        cutting.push_back(static_cast<int>(m));
    const auto named = std::find_if(given.begin(), given.end(), [&](const DimShardOrder& entry) {
      return entry.tensor_dim == d;
    });
    if (named == given.end()) {
      if (!cutting.empty()) order.push_back({d, cutting});
      continue;
    }
    std::vector<int> sorted = named->mesh_dims;
    std::sort(sorted.begin(), sorted.end());
    if (sorted != cutting)
      refuse("shard order [{}] of tensor dim {}, which the mesh dims [{}] shard in {}",
             fmt::join(named->mesh_dims, ", "), d, fmt::join(cutting, ", "), to_string(placements));
    if (!cutting.empty()) order.push_back(*named);
  }
  return order;
}

/// The order by rows of the first sharding of a dim, else null.
const DimOrder* row_order(const DTensorSpec& spec, const std::vector<int>& sharding_dims) {
  const DimOrder* order =
      sharding_dims.empty() ? nullptr : spec.dim_order(sharding_dims.front()).get();
  return order != nullptr && order->by_row() ? order : nullptr;
}

void check_dim_order(const DTensorSpec& spec, int mesh_dim, const DimOrder& order) {
  const Placement& placement = spec.placement(mesh_dim);
  if (!placement.is_shard())
    refuse("a dim order on mesh dim {}, which holds {}", mesh_dim, to_string(placement));
  if (order.size() != spec.shape()[placement.dim])
    refuse("a dim order of size {} for tensor dim {} of {}", order.size(), placement.dim,
           to_string(spec.shape()));
  check(order.parts() == spec.mesh().dim_size(mesh_dim),
        "a dim order of {} parts on mesh dim {} of size {}", order.parts(), mesh_dim,
        spec.mesh().dim_size(mesh_dim));
  check(order.parts() > 1 || order.plain(),
        "a dim order on mesh dim {} of size 1, which can only permute tensor dim {}", mesh_dim,
        placement.dim);
  check(spec.sharding_dims(placement.dim).front() == mesh_dim,
        "a dim order on mesh dim {}, which is not the first to shard tensor dim {}", mesh_dim,
        placement.dim);
  if (!order.by_row()) return;
  const int rows = order.row_dim();
  check(rows < spec.shape().size() && rows != placement.dim,
        "a dim order of tensor dim {} by rows of dim {}, of a tensor with {} dims", placement.dim,
        rows, spec.shape().size());
  if (order.rows() != spec.shape()[rows])
    refuse("a dim order of {} rows of tensor dim {} of {}", order.rows(), rows,
           to_string(spec.shape()));
  check(row_order(spec, spec.sharding_dims(rows)) == nullptr,
        "a dim order of tensor dim {} by rows of dim {}, which is sharded by rows itself",
        placement.dim, rows);
}

/// Reductions of different kinds do not commute: max of sums is not the sum of maxima, so the value
/// would hang on which mesh dim is reduced first. sum and avg do.
void check_partial_kinds(const Placements& placements) {
  const Placement* first = nullptr;
  for (const Placement& p : placements) {
    if (!p.is_partial()) continue;
    if (first == nullptr) first = &p;
    if (p.partial != first->partial && !(adds(p.partial) && adds(first->partial)))
      refuse("placements {} mix kinds of Partial; only sum and avg may go together",
             to_string(placements));
  }
}

}  // namespace

DTensorSpec::DTensorSpec(MeshPtr mesh, Placements placements, Shape shape, ShardOrder order,
                         std::vector<DimOrderPtr> dim_orders)
    : mesh_(std::move(mesh)), shape_(shape), dim_orders_(std::move(dim_orders)) {
  check(mesh_ != nullptr, "a layout without a mesh");
  if (static_cast<int>(placements.size()) != mesh_->ndim())
    refuse("{} placements {} on mesh {}", placements.size(), to_string(placements),
           meshloom::planner::to_string(*mesh_));
  placements_ = normalize_placements(placements, shape_.size());
  check_partial_kinds(placements_);
  order_ = complete_order(placements_, shape_.size(), order);
  for (const DimShardOrder& entry : order_)
    default_order_ =
        default_order_ && std::is_sorted(entry.mesh_dims.begin(), entry.mesh_dims.end());
  if (!dim_orders_.empty() && dim_orders_.size() != placements_.size())
    refuse("{} dim orders on mesh {}", dim_orders_.size(), meshloom::planner::to_string(*mesh_));
  bool any = false;
  for (std::size_t m = 0; m < dim_orders_.size(); ++m) {
    if (dim_orders_[m] == nullptr) continue;
    check_dim_order(*this, static_cast<int>(m), *dim_orders_[m]);
    if (dim_orders_[m]->plain()) dim_orders_[m] = nullptr;
    any = any || dim_orders_[m] != nullptr;
  }
  if (!any) dim_orders_.clear();
  hash_ = compute_hash();
}

std::uint64_t DTensorSpec::compute_hash() const {
  std::uint64_t hash = 0x6c61796f7574ULL;
  for (const MeshDim& dim : mesh_->dims())
    hash = hash_mix(hash, static_cast<std::uint64_t>(dim.size));
  for (const std::int64_t size : shape_) hash = hash_mix(hash, static_cast<std::uint64_t>(size));
  for (const Placement& p : placements_)
    hash = hash_mix(hash, (static_cast<std::uint64_t>(p.kind) << 16) |
                              (static_cast<std::uint64_t>(p.partial) << 8) |
                              static_cast<std::uint64_t>(p.dim));
  for (const DimShardOrder& entry : order_)
    for (const int m : entry.mesh_dims) hash = hash_mix(hash, static_cast<std::uint64_t>(m));
  for (const DimOrderPtr& order : dim_orders_) hash = hash_mix(hash, order ? order->digest() : 0);
  return hash;
}

const std::vector<int>& DTensorSpec::sharding_dims(int tensor_dim) const {
  for (const DimShardOrder& entry : order_)
    if (entry.tensor_dim == tensor_dim) return entry.mesh_dims;
  return kNoDims;
}

const DimOrderPtr& DTensorSpec::dim_order(int mesh_dim) const {
  return dim_orders_.empty() ? kNoDimOrder : dim_orders_[static_cast<std::size_t>(mesh_dim)];
}

bool DTensorSpec::replicated() const {
  return std::all_of(placements_.begin(), placements_.end(),
                     [](const Placement& p) { return p.is_replicate(); });
}

bool DTensorSpec::has_partial() const {
  return std::any_of(placements_.begin(), placements_.end(),
                     [](const Placement& p) { return p.is_partial(); });
}

IndexRanges DTensorSpec::shard_dim(const DimShardOrder& shards, const std::vector<int>& coordinates,
                                   std::int64_t row) const {
  const std::int64_t size = shape_[shards.tensor_dim];
  IndexRanges held = size > 0 ? IndexRanges{{0, size}} : IndexRanges{};
  for (const int m : shards.mesh_dims) {
    const int index = coordinates[static_cast<std::size_t>(m)];
    const DimOrderPtr& order = dim_order(m);
    held = order ? order->part(index, row)
                 : sub_ranges(held, shard_range(total_size(held), mesh_->dim_size(m), index));
  }
  return held;
}

LocalPart DTensorSpec::local_part(const std::vector<int>& coordinates) const {
  if (coordinates.size() != placements_.size())
    refuse("{} coordinates on mesh {}", coordinates.size(), meshloom::planner::to_string(*mesh_));
  std::vector<IndexRanges> ranges;
  for (const std::int64_t size : shape_)
    ranges.push_back(size > 0 ? IndexRanges{{0, size}} : IndexRanges{});
  for (const DimShardOrder& entry : order_)
    ranges[static_cast<std::size_t>(entry.tensor_dim)] = shard_dim(entry, coordinates, 0);
  std::vector<RowLists> rows;
  for (const DimShardOrder& entry : order_) {
    const DimOrder* order = row_order(*this, entry.mesh_dims);
    if (order == nullptr) continue;
    RowLists& lists = rows.emplace_back(RowLists{entry.tensor_dim, order->row_dim(), {}});
    for (const ShardRange& held : ranges[static_cast<std::size_t>(order->row_dim())])
      for (std::int64_t row = held.begin; row < held.end; ++row)
        lists.lists.push_back(shard_dim(entry, coordinates, row));
  }
  return LocalPart(std::move(ranges), std::move(rows));
}

Shape DTensorSpec::local_shape(const std::vector<int>& coordinates) const {
  Shape result = shape_;
  for (const DimShardOrder& entry : order_) {
    std::int64_t& size = result[entry.tensor_dim];
    for (const int m : entry.mesh_dims) {
      const int index = coordinates[static_cast<std::size_t>(m)];
      const DimOrderPtr& order = dim_order(m);
      size = order ? order->part_size(index) : shard_range(size, mesh_->dim_size(m), index).size();
    }
  }
  return result;
}

bool DTensorSpec::operator==(const DTensorSpec& other) const {
  if (this == &other) return true;
  if (hash_ != other.hash_ || dim_orders_.size() != other.dim_orders_.size()) return false;
  for (std::size_t m = 0; m < dim_orders_.size(); ++m)
    if (!same_order(dim_orders_[m], other.dim_orders_[m])) return false;
  return placements_ == other.placements_ && order_ == other.order_ && shape_ == other.shape_ &&
         (mesh_ == other.mesh_ || *mesh_ == *other.mesh_);
}

SpecPtr with_placements(const DTensorSpec& spec, Placements placements,
                        std::vector<DimOrderPtr> orders) {
  const int dims = spec.mesh().ndim();
  if (orders.empty()) orders.resize(static_cast<std::size_t>(dims));
  ShardOrder order;
  for (int t = 0; t < spec.shape().size(); ++t) {
    DimShardOrder shards{t, {}};
    const auto shards_it = [&](int d) {
      const Placement& placement = placements[static_cast<std::size_t>(d)];
      return placement.is_shard() && placement.dim == t;
    };
    for (const int d : spec.sharding_dims(t))
      if (shards_it(d)) shards.mesh_dims.push_back(d);
    for (int d = 0; d < dims; ++d)
      if (shards_it(d) &&
          std::find(shards.mesh_dims.begin(), shards.mesh_dims.end(), d) == shards.mesh_dims.end())
        shards.mesh_dims.push_back(d);
    if (!shards.mesh_dims.empty()) order.push_back(std::move(shards));
  }
  for (int d = 0; d < dims; ++d) {
    DimOrderPtr& kept = orders[static_cast<std::size_t>(d)];
    if (!kept && placements[static_cast<std::size_t>(d)] == spec.placement(d))
      kept = spec.dim_order(d);
  }
  return std::make_shared<const DTensorSpec>(spec.mesh_ptr(), std::move(placements), spec.shape(),
                                             std::move(order), std::move(orders));
}

std::string to_string(const DTensorSpec& spec) {
  std::string text = to_string(spec.placements());
  if (!spec.default_order()) {
    text += " order";
    for (const DimShardOrder& entry : spec.shard_order())
      text += fmt::format(" {}:[{}]", entry.tensor_dim, fmt::join(entry.mesh_dims, ", "));
  }
  for (int m = 0; m < spec.mesh().ndim(); ++m)
    if (const DimOrderPtr& order = spec.dim_order(m))
      text += fmt::format(" {}:{}", m, to_string(*order));
  return text;
}

}  // namespace meshloom::planner
