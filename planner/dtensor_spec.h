// SPDX-License-Identifier: Apache-2.0
// DTensorSpec: how the ranks of a mesh hold one tensor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/shape.h"
#include "planner/dim_order.h"
#include "planner/local_part.h"
#include "planner/mesh_layout.h"
#include "planner/placement.h"

namespace meshloom::planner {

using MeshPtr = std::shared_ptr<const MeshLayout>;

/// DimShardOrder lists the mesh dims that shard `tensor_dim`, the outermost sharding first.
struct DimShardOrder {
  int tensor_dim = 0;
  std::vector<int> mesh_dims;

  bool operator==(const DimShardOrder&) const = default;
};
/// There is one entry per tensor dim that is sharded, by ascending tensor_dim.
using ShardOrder = std::vector<DimShardOrder>;

/// DTensorSpec is a value, shared by pointer. Splits follow shard.h (or a DimOrder), one mesh dim
/// after the other in shard order, each on what the one before left.
class DTensorSpec {
 public:
  /// `order` empty: ascending mesh dims. `dim_orders` empty, or one per mesh dim (null: the ceil
  /// rule); an order's size is that of the tensor dim its mesh dim shards, its parts the mesh dim's
  /// size, and it must be the first sharding of its dim; one part must not permute. An order by
  /// rows has as many as its row dim has elements (of which a rank holds those that it holds of
  /// that dim), and the row dim is not sharded by rows itself. An order whose parts are those of
  /// the ceil rule becomes null. Throws InvalidArgument naming what does not fit.
  DTensorSpec(MeshPtr mesh, Placements placements, Shape shape, ShardOrder order = {},
              std::vector<DimOrderPtr> dim_orders = {});

  const MeshPtr& mesh_ptr() const { return mesh_; }
  const MeshLayout& mesh() const { return *mesh_; }
  const Placements& placements() const { return placements_; }
  const Placement& placement(int mesh_dim) const {
    return placements_[static_cast<std::size_t>(mesh_dim)];
  }
  const Shape& shape() const { return shape_; }
  /// Returns the order, complete: every sharded tensor dim is listed.
  const ShardOrder& shard_order() const { return order_; }
  bool default_order() const { return default_order_; }
  /// Returns the mesh dims that shard `tensor_dim`, outermost first; empty if none does.
  const std::vector<int>& sharding_dims(int tensor_dim) const;
  /// Returns null for the ceil rule.
  const DimOrderPtr& dim_order(int mesh_dim) const;
  bool has_dim_orders() const { return !dim_orders_.empty(); }

  bool replicated() const;  ///< R on every mesh dim
  bool has_partial() const;

  /// Returns what the rank at `coordinates` (one per mesh dim) holds.
  LocalPart local_part(const std::vector<int>& coordinates) const;
  Shape local_shape(const std::vector<int>& coordinates) const;

  /// Compares mesh, placements, order, dim orders and shape.
  bool operator==(const DTensorSpec& other) const;
  std::uint64_t hash() const { return hash_; }

 private:
  /// Returns what is held of a dim, in one row if its order is by rows.
  IndexRanges shard_dim(const DimShardOrder& shards, const std::vector<int>& coordinates,
                        std::int64_t row) const;
  std::uint64_t compute_hash() const;

  MeshPtr mesh_;
  Placements placements_;
  Shape shape_;
  ShardOrder order_;
  std::vector<DimOrderPtr> dim_orders_;
  bool default_order_ = true;
  std::uint64_t hash_ = 0;
};

using SpecPtr = std::shared_ptr<const DTensorSpec>;

/// Returns the layout with other placements. Mesh dims whose placement stays keep their dim order,
/// unless `orders` (empty, or one per mesh dim) has another; of a tensor dim those that sharded it
/// before do so first.
SpecPtr with_placements(const DTensorSpec& spec, Placements placements,
                        std::vector<DimOrderPtr> orders = {});

/// Returns "[S(0), R]", with an order "[S(0), S(0)] order 0:[1, 0]".
std::string to_string(const DTensorSpec&);

}  // namespace meshloom::planner

template <>
struct fmt::formatter<meshloom::planner::DTensorSpec>
    : meshloom::ToStringFormatter<meshloom::planner::DTensorSpec> {};
