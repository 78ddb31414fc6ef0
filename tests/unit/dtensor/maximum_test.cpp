// SPDX-License-Identifier: Apache-2.0
// amax by ranks: maxima of shards where no gradient is wanted, whole rows where one is.
#include <gtest/gtest.h>

#include "daemon/dtensor/api/redistribute_tensor.h"
#include "daemon/dtensor/api/to_local.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/autograd/checkpoint.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/reduce.h"
#include "tests/unit/dtensor/engine_rank.h"
#include "tests/unit/dtensor/global_values.h"

namespace meshloom::test {
namespace {

struct Input {
  Tensor whole, sharded;
};

/// The same values (ties among them) on one rank and on the mesh.
Input make_input(EngineRank& rank, const std::vector<const char*>& texts, const Shape& shape,
                 bool requires_grad) {
  const auto spec = make_spec(rank.mesh, texts, shape);
  const auto values = [](const std::vector<std::int64_t>& indices) {
    std::vector<float> result;
    for (const std::int64_t i : indices)
      result.push_back(static_cast<float>((i * 13 + 5) % 11) - 20.0f);
    return result;
  };
  std::vector<std::int64_t> all(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  const auto& coordinates = rank.mesh.coordinates();
  const auto mine = values(held_indices(*spec, coordinates));
  Tensor local = from_values(rank.context, spec->local_shape(coordinates), std::span(mine));
  const auto every = values(all);
  Input input{from_values(rank.context, shape, std::span(every)), {}};
  input.whole.set_requires_grad(requires_grad);
  local.set_requires_grad(requires_grad);
  input.sharded = with_layout(std::move(local), spec, rank.engine);
  return input;
}

std::vector<std::vector<const char*>> all_placements(std::size_t mesh_dims) {
  const std::vector<const char*> each = {"R", "S(0)", "S(1)", "S(2)"};
  std::vector<std::vector<const char*>> all = {{}};
  for (std::size_t d = 0; d < mesh_dims; ++d) {
    std::vector<std::vector<const char*>> longer;
    for (const auto& before : all) {
      for (const char* text : each) {
        longer.push_back(before);
        longer.back().push_back(text);
      }
    }
    all = std::move(longer);
  }
  return all;
}

TEST(Maximum, IsThatOfOneRankOnEveryMesh) {
  const Shape shape = {5, 3, 4};
  for (const std::vector<int>& sizes :
       {std::vector<int>{2}, std::vector<int>{3}, std::vector<int>{4}, std::vector<int>{2, 2}}) {
    on_engine_mesh(sizes, [&](EngineRank& rank) {
      for (const auto& texts : all_placements(sizes.size())) {
        for (const Dims& dims : {Dims{0}, Dims{1}, Dims{2}, Dims{0, 2}, Dims{}}) {
          for (const bool gradient : {false, true}) {
            const Input in = make_input(rank, texts, shape, gradient);
            const Tensor want = ops::amax(in.whole, dims, gradient);
            const Tensor got = dtensor::full_tensor(ops::amax(in.sharded, dims, gradient));
            EXPECT_EQ(got.to_vector(), want.to_vector()) << to_string(*in.sharded.layout()->spec);
            if (!gradient) continue;
            autograd::backward(ops::sum(ops::mul(want, want)));
            autograd::backward(ops::sum(ops::mul(got, got)));
            const Tensor grad = dtensor::full_tensor(in.sharded.grad());
            EXPECT_EQ(grad.to_vector(), in.whole.grad().to_vector())
                << to_string(*in.sharded.layout()->spec);
          }
        }
      }
    });
  }
}

TEST(Maximum, StaysWithTheShardsWhereNoGradientIsWanted) {
  on_engine_mesh({2}, [](EngineRank& rank) {
    const auto layout_after = [&](bool requires_grad) {
      const Input in = make_input(rank, {"S(0)"}, {5, 300}, requires_grad);
      return planner::to_string(*ops::amax(in.sharded, {0}).layout()->spec);
    };
    EXPECT_EQ(layout_after(false), "[P(max)]");
    EXPECT_EQ(rank.calls(), 0u);
    {
      const NoGradGuard no_grad(rank.context);
      EXPECT_EQ(layout_after(true), "[P(max)]");
      EXPECT_EQ(rank.calls(), 0u);
    }
    EXPECT_NE(layout_after(true), "[P(max)]");
    EXPECT_GT(rank.calls(), 0u);
  });
}

}  // namespace
}  // namespace meshloom::test
