// SPDX-License-Identifier: Apache-2.0
#include "planner/sharding/axis_sharding.h"

#include <algorithm>
#include <set>

#include "kernels/base/integer_math.h"

namespace meshloom::planner {
namespace {

/// More ranges than this over all parts make an order that costs more than it saves.
constexpr std::int64_t kMostRanges = 1 << 14;

/// Elements of a stretch that the largest part holds, sharded in whole units.
std::int64_t chunk_of(std::int64_t stretch, std::int64_t unit, int parts) {
  return std::min(stretch, divide_up<std::int64_t>(divide_up(stretch, unit), parts) * unit);
}

/// The sizes that parts of [0, size) have, sharded into chunks.
std::set<std::int64_t> part_sizes(std::int64_t size, std::int64_t chunk) {
  if (chunk == 0) return {};
  std::set<std::int64_t> sizes{std::min(size, chunk)};
  if (size % chunk != 0) sizes.insert(size % chunk);
  return sizes;
}

/// Further shardings go by the ceil rule in steps of `from` elements: do steps of `to` give the
/// same?
bool same_inner_shards(const AxisSharding& sharding, const MeshLayout& mesh, std::int64_t to) {
  const std::int64_t from = sharding.inner_unit;
  if (from == to || sharding.mesh_dims.size() < 2) return true;
  std::set<std::int64_t> sizes = part_sizes(sharding.size, sharding.chunk);
  for (std::size_t i = 1; i < sharding.mesh_dims.size(); ++i) {
    const int parts = mesh.dim_size(sharding.mesh_dims[i]);
    std::set<std::int64_t> next;
    for (const std::int64_t size : sizes) {
      const std::int64_t chunk = chunk_of(size, from, parts);
      if (size % to != 0 || chunk != chunk_of(size, to, parts)) return false;
      next.merge(part_sizes(size, chunk));
    }
    sizes = std::move(next);
  }
  return true;
}

DimOrderPtr blocked_or_null(std::int64_t size, int parts, std::int64_t groups, std::int64_t unit) {
  DimOrderPtr order = DimOrder::blocked(size, parts, static_cast<int>(groups), unit);
  return order->plain() ? nullptr : order;
}

}  // namespace

AxisSharding read_sharding(const DTensorSpec& spec, const AxisUse& use, std::int64_t axis_size,
                           std::vector<int> mesh_dims, std::size_t input) {
  AxisSharding sharding;
  sharding.size = axis_size;
  sharding.read = true;
  sharding.source = use;
  sharding.source_input = input;
  sharding.parts = spec.mesh().dim_size(mesh_dims.front());
  if (spec.sharding_dims(use.dim).front() == mesh_dims.front())
    sharding.order = spec.dim_order(mesh_dims.front());
  sharding.mesh_dims = std::move(mesh_dims);
  const bool blocked = sharding.order != nullptr && sharding.order->groups() > 0;
  sharding.groups = use.prefix * (blocked ? sharding.order->groups() : 1);
  sharding.unit = use.suffix * (blocked ? sharding.order->unit() : 1);
  sharding.chunk = chunk_of(axis_size / std::max<std::int64_t>(1, sharding.groups), sharding.unit,
                            sharding.parts);
  sharding.inner_unit = use.suffix;
  return sharding;
}

AxisSharding unit_sharding(const MeshLayout& mesh, std::int64_t axis_size,
                           std::vector<int> mesh_dims, std::int64_t groups, std::int64_t unit) {
  AxisSharding sharding;
  sharding.size = axis_size;
  sharding.parts = mesh.dim_size(mesh_dims.front());
  sharding.mesh_dims = std::move(mesh_dims);
  sharding.groups = groups;
  sharding.unit = unit;
  sharding.chunk = chunk_of(axis_size / groups, unit, sharding.parts);
  sharding.inner_unit = unit;
  return sharding;
}

DimSharding sharding_of_dim(const AxisSharding& sharding, const MeshLayout& mesh,
                            const AxisUse& use, std::int64_t dim_size, int row_dim) {
  const bool nested = sharding.mesh_dims.size() > 1;
  if (sharding.by_row() && row_dim < 0) return {};
  if (sharding.read && use.prefix == sharding.source.prefix && use.suffix == sharding.source.suffix)
    return {true, DimOrder::with_row_dim(sharding.order, row_dim)};
  if (sharding.listed()) return {};
  if (dim_size == 0 || sharding.size == 0) return {!nested, nullptr};
  if (sharding.groups == 1 && sharding.chunk >= sharding.size)
    return {!nested, blocked_or_null(dim_size, sharding.parts, 1, dim_size)};
  if (sharding.groups % use.prefix != 0) return {};
  const std::int64_t groups = sharding.groups / use.prefix;
  if (dim_size % groups != 0 || groups * sharding.parts > kMostRanges) return {};
  const std::int64_t stretch = dim_size / groups;
  const bool whole = sharding.chunk >= sharding.size / sharding.groups;
  if (!whole && sharding.chunk % use.suffix != 0) return {};
  if (nested && (sharding.groups > 1 || !same_inner_shards(sharding, mesh, use.suffix))) return {};
  const std::int64_t chunk = whole ? stretch : sharding.chunk / use.suffix;
  if (groups == 1 && chunk_of(stretch, 1, sharding.parts) == chunk) return {true, nullptr};
  const std::int64_t unit = std::max<std::int64_t>(1, sharding.unit / use.suffix);
  const bool spelled =
      sharding.unit % use.suffix == 0 && chunk_of(stretch, unit, sharding.parts) == chunk;
  return {true, blocked_or_null(dim_size, sharding.parts, groups, spelled ? unit : chunk)};
}

}  // namespace meshloom::planner
