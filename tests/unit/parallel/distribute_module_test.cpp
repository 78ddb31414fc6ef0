// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/distribute_module.h"

#include <gtest/gtest.h>

#include "daemon/dtensor/api/distribute_tensor.h"
#include "daemon/dtensor/api/to_local.h"
#include "daemon/nn/modules/linear.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/reduce.h"
#include "kernels/base/error.h"
#include "tests/support/grad_check.h"
#include "tests/unit/dtensor/engine_rank.h"

namespace meshloom::parallel {
namespace {

using test::EngineRank;
using test::placements;

std::optional<planner::Placements> rows(const std::string& name, const Tensor&) {
  if (name == "bias") return std::nullopt;
  return placements({"S(0)"});
}

TEST(DistributeModule, ComputesWhatOneRankComputes) {
  test::on_engine_mesh({3}, [](EngineRank& rank) {
    nn::Linear whole(rank.context, 5, 7, DType::kFloat32, {}),
        sharded(rank.context, 5, 7, DType::kFloat32, {});
    nn::initialize_parameters(whole, 3);
    // Only the source's values count.
    nn::initialize_parameters(sharded, rank.mesh.rank() == 1 ? 3 : 4);
    std::mt19937_64 random(5);
    const Tensor x = test::random_tensor(rank.context, {4, 5}, random, DType::kFloat32);

    DistributeModuleOptions options{.partition = rows, .src_data_rank = 1};
    options.hook.before = [&](std::span<Tensor> inputs) {
      inputs[0] =
          dtensor::distribute_tensor(inputs[0], rank.engine, placements({"R"}), std::nullopt);
    };
    options.hook.after = [](std::span<Tensor> outputs) {
      outputs[0] = dtensor::full_tensor(outputs[0]);
    };
    distribute_module(sharded, rank.engine, options);
    EXPECT_THROW(distribute_module(sharded, rank.engine, options), FailedPrecondition);

    const Tensor expected = whole(x), seen = sharded(x);
    test::expect_near(seen, expected.to_vector(), 1e-6);
    autograd::backward(ops::sum(ops::mul(expected, expected)));
    autograd::backward(ops::sum(ops::mul(seen, seen)));
    const auto parameters = whole.named_parameters(), parts = sharded.named_parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor grad = parts[i].parameter->value.grad();
      test::expect_near(dtensor::full_tensor(grad),
                        parameters[i].parameter->value.grad().to_vector(), 1e-5);
    }
  });
}

TEST(DistributeModule, RefusesBeforeAnythingMoves) {
  test::on_engine_mesh({2}, [](EngineRank& rank) {
    nn::Linear linear(rank.context, 4, 4, DType::kFloat32, {});
    nn::initialize_parameters(linear, 1);
    const auto refused = [&](const std::vector<const char*>& texts) {
      return test::error_text<InvalidArgument>([&] {
        distribute_module(
            linear, rank.engine, {.partition = [&](const std::string&, const Tensor& value) {
              return value.ndim() == 1 ? std::optional(placements(texts)) : std::nullopt;
            }});
      });
    };
    EXPECT_NE(refused({"P"}).find("'bias'"), std::string::npos);
    EXPECT_NE(refused({"R", "R"}).find("'bias'"), std::string::npos);
    EXPECT_EQ(rank.calls(), 0u);
    for (const nn::NamedParameter& p : linear.named_parameters())
      EXPECT_FALSE(p.parameter->value.has_layout());
    distribute_module(linear, rank.engine);
    for (const nn::NamedParameter& p : linear.named_parameters())
      EXPECT_TRUE(p.parameter->value.layout()->spec->replicated());
  });
}

}  // namespace
}  // namespace meshloom::parallel
