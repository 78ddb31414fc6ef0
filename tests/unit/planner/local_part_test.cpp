// SPDX-License-Identifier: Apache-2.0
#include "planner/local_part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "kernels/base/error.h"
#include "tests/unit/planner/redistribute/spec_maker.h"

namespace meshloom::planner {
namespace {

using Elements = std::vector<std::int64_t>;

Elements elements_of(const IndexRanges& ranges) {
  Elements list;
  for (const ShardRange& range : ranges)
    for (std::int64_t i = range.begin; i < range.end; ++i) list.push_back(i);
  return list;
}

/// What is held of a dim in one row, by the definition of orders and shardings, element by element.
Elements held_in_row(const DTensorSpec& spec, int dim, const std::vector<int>& at,
                     std::int64_t row) {
  Elements held;
  for (std::int64_t i = 0; i < spec.shape()[dim]; ++i) held.push_back(i);
  for (const int m : spec.sharding_dims(dim)) {
    const int index = at[static_cast<std::size_t>(m)];
    if (const DimOrderPtr& order = spec.dim_order(m)) {
      held = elements_of(order->part(index, row));
      continue;
    }
    const auto size = static_cast<std::int64_t>(held.size());
    const std::int64_t chunk = (size + spec.mesh().dim_size(m) - 1) / spec.mesh().dim_size(m);
    Elements kept;
    for (std::int64_t i = 0; i < size; ++i)
      if (i / chunk == index) kept.push_back(held[static_cast<std::size_t>(i)]);
    held = std::move(kept);
  }
  return held;
}

const DimOrder* row_order(const DTensorSpec& spec, int dim) {
  if (spec.sharding_dims(dim).empty()) return nullptr;
  const DimOrder* order = spec.dim_order(spec.sharding_dims(dim).front()).get();
  return order && order->by_row() ? order : nullptr;
}

/// Global indices that a rank holds, in local order: dims nested, those by rows looked up.
Elements expected_indices(const DTensorSpec& spec, const std::vector<int>& at) {
  const Shape& shape = spec.shape();
  const Shape local = spec.local_shape(at);
  Elements result;
  std::vector<std::int64_t> place(static_cast<std::size_t>(shape.size()), 0);
  const auto visit = [&](auto&& self, int d) -> void {
    if (d < shape.size()) {
      for (std::int64_t i = 0; i < local[d]; ++i) {
        place[static_cast<std::size_t>(d)] = i;
        self(self, d + 1);
      }
      return;
    }
    std::int64_t index = 0;
    for (int k = 0; k < shape.size(); ++k) {
      std::int64_t row = 0;
      if (const DimOrder* order = row_order(spec, k)) {
        const int r = order->row_dim();
        row = held_in_row(spec, r, at,
                          0)[static_cast<std::size_t>(place[static_cast<std::size_t>(r)])];
      }
      index = index * shape[k] +
              held_in_row(spec, k, at,
                          row)[static_cast<std::size_t>(place[static_cast<std::size_t>(k)])];
    }
    result.push_back(index);
  };
  visit(visit, 0);
  return result;
}

constexpr SpecDraw kAnySharding{false, true, true, true};

TEST(LocalPart, HoldsWhatOrdersAndShardsDefine) {
  std::mt19937 random(31);
  int by_row = 0, nested = 0, rows_sharding = 0;
  for (int i = 0; i < 6000; ++i) {
    const MeshPtr mesh = draw_mesh(random, 3);
    const SpecPtr spec = draw_spec(random, mesh, draw_shape(random), kAnySharding);
    std::multiset<std::int64_t> held;
    for (int rank = 0; rank < mesh->size(); ++rank) {
      const std::vector<int> at = mesh->coordinates(rank);
      const LocalPart part = spec->local_part(at);
      ASSERT_EQ(part.shape(), spec->local_shape(at)) << to_string(*spec);
      const Elements indices = global_indices(part, spec->shape());
      ASSERT_EQ(indices, expected_indices(*spec, at))
          << to_string(*spec) << " of " << meshloom::to_string(spec->shape());
      by_row += part.is_product() ? 0 : 1;
      bool copy = false;
      for (int m = 0; m < mesh->ndim(); ++m)
        copy = copy || (!spec->placement(m).is_shard() && at[static_cast<std::size_t>(m)] > 0);
      if (!copy) held.insert(indices.begin(), indices.end());
    }
    for (int d = 0; d < spec->shape().size(); ++d)
      if (const DimOrder* order = row_order(*spec, d)) {
        nested += spec->sharding_dims(d).size() > 1 ? 1 : 0;
        rows_sharding += spec->sharding_dims(order->row_dim()).empty() ? 0 : 1;
      }
    ASSERT_EQ(held.size(), static_cast<std::size_t>(numel(spec->shape()))) << to_string(*spec);
    ASSERT_EQ(std::set<std::int64_t>(held.begin(), held.end()).size(), held.size());
  }
  EXPECT_GT(by_row, 300);
  EXPECT_GT(nested, 20);
  EXPECT_GT(rows_sharding, 30);
}

TEST(LocalPart, BlocksTileIt) {
  std::mt19937 random(32);
  for (int i = 0; i < 600; ++i) {
    const MeshPtr mesh = draw_mesh(random, 2);
    const SpecPtr spec = draw_spec(random, mesh, draw_shape(random), kAnySharding);
    const LocalPart part = spec->local_part(mesh->coordinates(mesh->size() - 1));
    const Elements indices = global_indices(part, spec->shape());
    std::vector<int> seen(indices.size(), 0);
    for (const PartBlock& block : part.blocks()) {
      const LocalPart alone(block.ranges);
      ASSERT_EQ(alone.shape(), block.shape);
      const Elements inside = global_indices(alone, spec->shape());
      Dims at = block.shape;
      for (std::int64_t& n : at) n = 0;
      for (const std::int64_t index : inside) {
        std::int64_t place = 0;
        for (int d = 0; d < at.size(); ++d)
          place = place * part.shape()[d] + block.first[d] + at[d];
        ASSERT_EQ(indices[static_cast<std::size_t>(place)], index) << to_string(*spec);
        ++seen[static_cast<std::size_t>(place)];
        for (int d = at.size() - 1; d >= 0 && ++at[d] == block.shape[d]; --d) at[d] = 0;
      }
    }
    for (const int times : seen) ASSERT_EQ(times, 1);
  }
}

TEST(LocalPart, AnswersByDimOnlyWhereRowsAreAlike) {
  const MeshPtr mesh = make_mesh({2, 2});
  const auto rows = DimOrder::listed_by_row(
      4, 0, {{{{0, 2}}, {{2, 4}}}, {{{0, 1}, {3, 4}}, {{1, 3}}}, {{{0, 1}, {3, 4}}, {{1, 3}}}});
  const SpecPtr spec = make_spec(mesh, {"S(1)", "S(0)"}, {3, 4}, {}, {rows, nullptr});
  // Rows 0 and 1: two lists.
  const LocalPart both = spec->local_part({0, 0});
  EXPECT_FALSE(both.is_product());
  EXPECT_FALSE(both.contiguous());
  EXPECT_THROW(both.ranges(1), InternalError);
  EXPECT_THROW(both.product(), InternalError);
  EXPECT_THROW(both.offset(spec->shape()), InternalError);
  EXPECT_EQ(both.ranges(0), (IndexRanges{{0, 2}}));
  EXPECT_EQ(both.ranges_of_row(1, 1), (IndexRanges{{0, 1}, {3, 4}}));
  EXPECT_EQ(both.blocks().size(), 2u);
  // Row 2 alone is a product.
  const LocalPart one = spec->local_part({0, 1});
  EXPECT_TRUE(one.is_product());
  EXPECT_EQ(one.ranges(1), (IndexRanges{{0, 1}, {3, 4}}));
  // Rows that follow each other and are alike are one block.
  const SpecPtr whole = make_spec(mesh, {"S(1)", "R"}, {3, 4}, {}, {rows, nullptr});
  const std::vector<PartBlock> blocks = whole->local_part({1, 0}).blocks();
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[1].first, (Dims{1, 0}));
  EXPECT_EQ(blocks[1].shape, (Shape{2, 2}));
  EXPECT_EQ(LocalPart::none().shape(), (Shape{0}));
  EXPECT_EQ(global_indices(LocalPart(), {}), (Elements{0}));
}

TEST(CommonBoxes, AreTheSameElementsOnBothSides) {
  std::mt19937 random(22);
  int by_row = 0;
  for (int i = 0; i < 9000; ++i) {
    const MeshPtr mesh = draw_mesh(random, 2);
    const Shape shape = draw_shape(random);
    const LocalPart from =
        draw_spec(random, mesh, shape, kAnySharding)->local_part(mesh->coordinates(0));
    const LocalPart to = draw_spec(random, mesh, shape, kAnySharding)
                             ->local_part(mesh->coordinates(mesh->size() - 1));
    by_row += from.is_product() && to.is_product() ? 0 : 1;
    const Elements in_from = global_indices(from, shape), in_to = global_indices(to, shape);
    std::multiset<std::int64_t> found;
    const Boxes boxes = common_boxes(from, to);
    for (const Box& box : boxes) {
      Dims at = box.size;
      for (std::int64_t& n : at) n = 0;
      for (std::int64_t n = numel(box.size); n > 0; --n) {
        std::int64_t left = 0, right = 0;
        for (int d = 0; d < at.size(); ++d) {
          left = left * from.shape()[d] + box.from[d] + at[d];
          right = right * to.shape()[d] + box.to[d] + at[d];
        }
        ASSERT_EQ(in_from[static_cast<std::size_t>(left)], in_to[static_cast<std::size_t>(right)]);
        found.insert(in_to[static_cast<std::size_t>(right)]);
        for (int d = at.size() - 1; d >= 0 && ++at[d] == box.size[d]; --d) at[d] = 0;
      }
    }
    std::multiset<std::int64_t> expected;
    for (const std::int64_t index : in_to)
      if (std::find(in_from.begin(), in_from.end(), index) != in_from.end()) expected.insert(index);
    ASSERT_EQ(found, expected);
    ASSERT_EQ(count_elements(boxes), static_cast<std::int64_t>(expected.size()));
  }
  EXPECT_GT(by_row, 200);
}

}  // namespace
}  // namespace meshloom::planner
