// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/planner/redistribute/spec_maker.h"

#include <algorithm>

#include "tests/support/random_rows.h"

namespace meshloom::planner {
namespace {

int draw(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

/// Which kinds of Partial a layout may hold together: sum and avg, max, or min.
std::vector<PartialOp> draw_partial_kinds(std::mt19937& random) {
  const int kind = draw(random, 0, 3);
  if (kind < 2) return {PartialOp::kSum, PartialOp::kAvg};
  return {kind == 2 ? PartialOp::kMax : PartialOp::kMin};
}

/// Without kinds of Partial, none is drawn.
Placement draw_placement(std::mt19937& random, int ndim, const std::vector<PartialOp>& partials) {
  const int kind = draw(random, 0, partials.empty() ? 2 : 3);
  if (kind == 0) return Placement::replicate();
  if (kind == 3)
    return Placement::partial_of(
        partials[static_cast<std::size_t>(draw(random, 0, static_cast<int>(partials.size()) - 1))]);
  return Placement::shard(draw(random, 0, ndim - 1));
}

/// A sharding into ranges in any order.
DimOrderPtr draw_dim_order(std::mt19937& random, std::int64_t size, int parts) {
  if (draw(random, 0, 1) == 0) {
    const int groups = size % 3 == 0 ? 3 : size % 2 == 0 ? 2 : 1;
    return DimOrder::blocked(size, parts, groups, draw(random, 1, 2));
  }
  std::vector<std::int64_t> elements(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<std::int64_t>(i);
  std::shuffle(elements.begin(), elements.end(), random);
  std::vector<IndexRanges> ranges(static_cast<std::size_t>(parts));
  for (std::size_t i = 0; i < elements.size(); ++i)
    ranges[i % ranges.size()].push_back({elements[i], elements[i] + 1});
  return DimOrder::listed(size, ranges);
}

/// A dim whose rows may order `tensor_dim`, or -1.
int draw_row_dim(std::mt19937& random, const Placements& placements, const Shape& shape,
                 int tensor_dim, const std::vector<DimOrderPtr>& orders) {
  const int row_dim = draw(random, 0, shape.size() - 1);
  const bool fits =
      shape[row_dim] > 0 && test::may_order_by_rows(placements, orders, tensor_dim, row_dim);
  return fits ? row_dim : -1;
}

SpecPtr finish_spec(std::mt19937& random, const MeshPtr& mesh, const Placements& placements,
                    const Shape& shape, const SpecDraw& wanted) {
  ShardOrder order;
  std::vector<DimOrderPtr> dim_orders;
  if (wanted.dim_orders) dim_orders.resize(placements.size());
  for (int d = 0; d < shape.size(); ++d) {
    DimShardOrder entry{d, {}};
    for (std::size_t m = 0; m < placements.size(); ++m)
      if (placements[m] == Placement::shard(d)) entry.mesh_dims.push_back(static_cast<int>(m));
    if (entry.mesh_dims.empty()) continue;
    if (wanted.orders) std::shuffle(entry.mesh_dims.begin(), entry.mesh_dims.end(), random);
    const int first = entry.mesh_dims.front();
    if (wanted.dim_orders && mesh->dim_size(first) > 1 && draw(random, 0, 1) == 0) {
      DimOrderPtr& made = dim_orders[static_cast<std::size_t>(first)];
      const int row_dim = wanted.by_row && draw(random, 0, 2) > 0
                              ? draw_row_dim(random, placements, shape, d, dim_orders)
                              : -1;
      made = row_dim < 0
                 ? draw_dim_order(random, shape[d], mesh->dim_size(first))
                 : DimOrder::listed_by_row(
                       shape[d], row_dim,
                       test::random_rows(random, shape[d], mesh->dim_size(first), shape[row_dim]));
    }
    order.push_back(std::move(entry));
  }
  return std::make_shared<const DTensorSpec>(mesh, placements, shape, order, dim_orders);
}

}  // namespace

MeshPtr make_mesh(const std::vector<int>& sizes) {
  std::vector<MeshDim> dims;
  for (const int size : sizes) dims.push_back({"", size});
  return std::make_shared<const MeshLayout>(dims);
}

Placements make_placements(const std::vector<std::string>& texts) {
  Placements placements;
  for (const std::string& text : texts) placements.push_back(parse_placement(text));
  return placements;
}

SpecPtr make_spec(const MeshPtr& mesh, const std::vector<std::string>& texts, const Shape& shape,
                  const ShardOrder& order, const std::vector<DimOrderPtr>& dim_orders) {
  return std::make_shared<const DTensorSpec>(mesh, make_placements(texts), shape, order,
                                             dim_orders);
}

SpecPtr draw_spec(std::mt19937& random, const MeshPtr& mesh, const Shape& shape,
                  const SpecDraw& wanted) {
  std::vector<PartialOp> partials;
  if (wanted.partial) partials = draw_partial_kinds(random);
  Placements placements;
  for (int m = 0; m < mesh->ndim(); ++m)
    placements.push_back(draw_placement(random, shape.size(), partials));
  return finish_spec(random, mesh, placements, shape, wanted);
}

SpecPtr draw_target(std::mt19937& random, const DTensorSpec& from, const SpecDraw& wanted) {
  std::vector<PartialOp> partials;
  if (wanted.partial) partials = {PartialOp::kSum};
  for (const Placement& held : from.placements())
    if (wanted.partial && held.is_partial() && held.partial >= PartialOp::kMax)
      partials = {held.partial};
  Placements placements;
  for (const Placement& held : from.placements()) {
    Placement placement = draw_placement(random, from.shape().size(), partials);
    const bool legal = placement.partial == PartialOp::kSum || held == placement;
    if (placement.is_partial() && !legal) placement = Placement::replicate();
    placements.push_back(placement);
  }
  return finish_spec(random, from.mesh_ptr(), placements, from.shape(), wanted);
}

MeshPtr draw_mesh(std::mt19937& random, int most_dims) {
  std::vector<int> sizes(static_cast<std::size_t>(draw(random, 1, most_dims)));
  for (int& size : sizes) size = std::max(1, draw(random, 0, 3));
  return make_mesh(sizes);
}

Shape draw_shape(std::mt19937& random) {
  Shape shape;
  const int ndim = draw(random, 1, 3);
  for (int d = 0; d < ndim; ++d) shape.push_back(std::max(0, draw(random, -1, 7)));
  return shape;
}

}  // namespace meshloom::planner
