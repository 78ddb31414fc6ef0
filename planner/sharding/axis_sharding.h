// SPDX-License-Identifier: Apache-2.0
// AxisSharding: how mesh dims shard an axis that several tensors of an op share, told apart from
// the tensor dims that show it.
//
// An axis is a flat range of elements. A tensor dim of `size` elements shows it as
// [prefix, size, suffix], row-major: prefix = suffix = 1 is the axis itself, a dim of a reshaped
// tensor is one factor of it, a piece of a split is a prefix of as many as there are pieces. So
// views, fused projections and grouped heads are all one rule: two dims are sharded alike if their
// shardings of the flat axis are the same sets.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/dtensor_spec.h"

namespace meshloom::planner {

/// A use says how one tensor shows an axis.
struct AxisUse {
  int dim = -1;  ///< of the tensor; -1: it does not have the axis
  std::int64_t prefix = 1;
  std::int64_t suffix = 1;
  /// The mesh dims that shard the axis shard the dim as they do in this input, in an order of its
  /// own and whatever its size; -1: the dim shows the axis.
  int keeps_input = -1;

  bool present() const { return dim >= 0; }
  bool shows_axis() const { return present() && keeps_input < 0; }
  bool operator==(const AxisUse&) const = default;
};

/// The flat axis is `groups` equal stretches, of each of which part p of the first mesh dim holds
/// [p * chunk, (p + 1) * chunk); further mesh dims shard what is left by the ceil rule, in steps of
/// inner_unit.
struct AxisSharding {
  std::vector<int> mesh_dims;  ///< outermost first
  std::int64_t size = 0;       ///< of the flat axis
  int parts = 1;               ///< of the first mesh dim
  std::int64_t groups = 1;
  std::int64_t unit = 1;  ///< what the chunk was made of: a nicer spelling of the same sharding
  std::int64_t chunk = 0;
  std::int64_t inner_unit = 1;
  /// If the sharding was read off a tensor: its order, and how that tensor, an input, shows the
  /// axis.
  bool read = false;
  DimOrderPtr order;
  AxisUse source;
  std::size_t source_input = 0;

  bool listed() const { return order != nullptr && order->groups() == 0; }
  bool by_row() const { return order != nullptr && order->by_row(); }
  /// Tells whether every part is one range of the axis.
  bool contiguous() const { return !listed() && (groups == 1 || chunk >= size); }
};

/// Returns the sharding of `mesh_dims` in which `use.dim` of input `input` is held; the first of
/// them takes the dim's order.
AxisSharding read_sharding(const DTensorSpec& spec, const AxisUse& use, std::int64_t axis_size,
                           std::vector<int> mesh_dims, std::size_t input = 0);
/// Returns a sharding in whole units of each of `groups` stretches.
AxisSharding unit_sharding(const MeshLayout& mesh, std::int64_t axis_size,
                           std::vector<int> mesh_dims, std::int64_t groups, std::int64_t unit);

struct DimSharding {
  bool fits = false;
  DimOrderPtr order;  ///< of the first mesh dim; null: the ceil rule
};
/// Returns the sharding as the order of a tensor dim of `dim_size`; does not fit if a boundary
/// falls inside an element of that dim. An order by rows fits a tensor that shows both the axis and
/// the rows as the tensor it was read off does: its `row_dim`, else -1.
DimSharding sharding_of_dim(const AxisSharding& sharding, const MeshLayout& mesh,
                            const AxisUse& use, std::int64_t dim_size, int row_dim = -1);

}  // namespace meshloom::planner
