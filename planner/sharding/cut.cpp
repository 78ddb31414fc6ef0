// SPDX-License-Identifier: Apache-2.0
#include "planner/sharding/cut.h"

#include <algorithm>
#include <set>

namespace meshloom::planner {
namespace {

/// More ranges than this over all parts make an order that costs more than it saves.
constexpr std::int64_t kMostRanges = 1 << 14;

std::int64_t ceil_div(std::int64_t n, std::int64_t d) { return n / d + (n % d != 0 ? 1 : 0); }

/// Elements of a stretch that the largest part holds, cut in whole units.
std::int64_t chunk_of(std::int64_t stretch, std::int64_t unit, int parts) {
  return std::min(stretch, ceil_div(ceil_div(stretch, unit), parts) * unit);
}

/// The sizes that parts of [0, size) have, cut into chunks.
std::set<std::int64_t> part_sizes(std::int64_t size, std::int64_t chunk) {
  if (chunk == 0) return {};
  std::set<std::int64_t> sizes{std::min(size, chunk)};
  if (size % chunk != 0) sizes.insert(size % chunk);
  return sizes;
}

/// Further cuts go by the ceil rule in steps of `from` elements: do steps of `to` give the same?
bool same_inner_cuts(const Cut& cut, const MeshLayout& mesh, std::int64_t to) {
  const std::int64_t from = cut.inner_unit;
  if (from == to || cut.mesh_dims.size() < 2) return true;
  std::set<std::int64_t> sizes = part_sizes(cut.size, cut.chunk);
  for (std::size_t i = 1; i < cut.mesh_dims.size(); ++i) {
    const int parts = mesh.dim_size(cut.mesh_dims[i]);
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

Cut read_cut(const DTensorSpec& spec, const AxisUse& use, std::int64_t axis_size,
             std::vector<int> mesh_dims, std::size_t input) {
  Cut cut;
  cut.size = axis_size;
  cut.read = true;
  cut.source = use;
  cut.source_input = input;
  cut.parts = spec.mesh().dim_size(mesh_dims.front());
  if (spec.cutters(use.dim).front() == mesh_dims.front())
    cut.order = spec.dim_order(mesh_dims.front());
  cut.mesh_dims = std::move(mesh_dims);
  const bool blocked = cut.order != nullptr && cut.order->groups() > 0;
  cut.groups = use.prefix * (blocked ? cut.order->groups() : 1);
  cut.unit = use.suffix * (blocked ? cut.order->unit() : 1);
  cut.chunk = chunk_of(axis_size / std::max<std::int64_t>(1, cut.groups), cut.unit, cut.parts);
  cut.inner_unit = use.suffix;
  return cut;
}

Cut unit_cut(const MeshLayout& mesh, std::int64_t axis_size, std::vector<int> mesh_dims,
             std::int64_t groups, std::int64_t unit) {
  Cut cut;
  cut.size = axis_size;
  cut.parts = mesh.dim_size(mesh_dims.front());
  cut.mesh_dims = std::move(mesh_dims);
  cut.groups = groups;
  cut.unit = unit;
  cut.chunk = chunk_of(axis_size / groups, unit, cut.parts);
  cut.inner_unit = unit;
  return cut;
}

DimCut cut_of_dim(const Cut& cut, const MeshLayout& mesh, const AxisUse& use, std::int64_t dim_size,
                  int row_dim) {
  const bool nested = cut.mesh_dims.size() > 1;
  if (cut.by_row() && row_dim < 0) return {};
  if (cut.read && use.prefix == cut.source.prefix && use.suffix == cut.source.suffix)
    return {true, DimOrder::with_row_dim(cut.order, row_dim)};
  if (cut.listed()) return {};
  if (dim_size == 0 || cut.size == 0) return {!nested, nullptr};
  if (cut.groups == 1 && cut.chunk >= cut.size)
    return {!nested, blocked_or_null(dim_size, cut.parts, 1, dim_size)};
  if (cut.groups % use.prefix != 0) return {};
  const std::int64_t groups = cut.groups / use.prefix;
  if (dim_size % groups != 0 || groups * cut.parts > kMostRanges) return {};
  const std::int64_t stretch = dim_size / groups;
  const bool whole = cut.chunk >= cut.size / cut.groups;
  if (!whole && cut.chunk % use.suffix != 0) return {};
  if (nested && (cut.groups > 1 || !same_inner_cuts(cut, mesh, use.suffix))) return {};
  const std::int64_t chunk = whole ? stretch : cut.chunk / use.suffix;
  if (groups == 1 && chunk_of(stretch, 1, cut.parts) == chunk) return {true, nullptr};
  const std::int64_t unit = std::max<std::int64_t>(1, cut.unit / use.suffix);
  const bool spelled = cut.unit % use.suffix == 0 && chunk_of(stretch, unit, cut.parts) == chunk;
  return {true, blocked_or_null(dim_size, cut.parts, groups, spelled ? unit : chunk)};
}

}  // namespace meshloom::planner
