// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/distributed_engine.h"

#include <gtest/gtest.h>

#include <functional>

#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/autograd/checkpoint.h"
#include "daemon/tensor/autograd/leaf_grad.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/loss.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/norm.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/dtensor/global_values.h"

namespace meshloom::dtensor {
namespace {

using planner::SpecPtr;
using test::make_local;
using test::make_spec;

/// What a rank of a test has; its mesh has one dim.
struct Rank {
  testing::TestContext context;
  DeviceMesh mesh;
  planner::PlanCache plans;
  DistributedEngine engine;

  explicit Rank(comm::ProcessGroup& world)
      : mesh(world, planner::MeshLayout({{"tp", world.size()}})), engine({mesh, plans}) {}

  Tensor tensor(const char* placement, const Shape& shape, bool requires_grad = false) {
    const SpecPtr spec = make_spec(mesh, {placement}, shape);
    Tensor local = make_local(context, *spec, mesh.coordinates());
    if (requires_grad) local.set_requires_grad(true);
    return with_layout(std::move(local), spec, engine);
  }
  std::uint64_t calls() const {
    std::uint64_t sum = 0;
    for (const auto& [name, counter] : mesh.counters()) sum += counter.calls;
    return sum;
  }
  std::string layout(const Tensor& x) const { return planner::to_string(*x.layout()->spec); }
};

void on_ranks(int size, const std::function<void(Rank&)>& body) {
  testing::run_thread_ranks(size, [&](comm::RankRuntime& runtime) {
    const auto world =
        testing::make_test_world(runtime, {"world", std::chrono::seconds(20), nullptr, {}});
    {
      Rank rank(*world);
      body(rank);
    }
    runtime.bootstrap().barrier();
  });
}

TEST(DistributedEngine, ReducesOncePerTensorWhereUsesAreAlike) {
  on_ranks(2, [](Rank& rank) {
    // Three column-parallel products of one replicated activation: one all_reduce backward.
    const Tensor x = ops::mul(rank.tensor("R", {3, 4}, true), 1.0);
    std::vector<Tensor> products;
    for (int i = 0; i < 3; ++i)
      products.push_back(ops::linear(x, rank.tensor("S(0)", {5, 4}, true), {}));
    EXPECT_EQ(rank.layout(products[0]), "[S(1)]");
    const Tensor sum = ops::sum(ops::add(ops::add(products[0], products[1]), products[2]));
    rank.mesh.reset_counters();
    autograd::backward(sum);
    EXPECT_EQ(rank.mesh.counters()["all_reduce"].calls, 1u);
    EXPECT_EQ(rank.calls(), 1u);
  });
}

TEST(DistributedEngine, NormsAreMadeAgainBehindABoundary) {
  on_ranks(2, [](Rank& rank) {
    const Tensor x = ops::mul(rank.tensor("R", {64, 32}, true), 1.0);
    Tensor normed = ops::layer_norm(x, {}, {}, 1e-5f);
    const Tensor q = ops::linear(normed, rank.tensor("S(0)", {6, 32}, true), {});
    const Tensor k = ops::linear(normed, rank.tensor("S(0)", {6, 32}, true), {});
    const std::size_t before = rank.context.allocator().stats().bytes_in_use;
    normed = Tensor();
    EXPECT_LE(rank.context.allocator().stats().bytes_in_use + 64 * 32 * sizeof(float), before);
    autograd::backward(ops::sum(ops::add(q, k)));
  });
}

TEST(DistributedEngine, GathersOncePerTensorWhereUsesAreAlike) {
  on_ranks(2, [](Rank& rank) {
    const Tensor x = ops::mul(rank.tensor("S(0)", {40, 4}, true), 1.0);
    rank.mesh.reset_counters();
    const Tensor q = ops::linear(x, rank.tensor("S(0)", {600, 4}, true), {});
    const Tensor k = ops::linear(x, rank.tensor("S(0)", {600, 4}, true), {});
    ASSERT_EQ(rank.layout(q), rank.layout(k));
    const std::uint64_t forward = rank.calls();
    EXPECT_EQ(forward, 1u);
    rank.mesh.reset_counters();
    autograd::backward(ops::sum(ops::mul(q, k)));
    EXPECT_EQ(rank.calls(), 1u);
  });
}

TEST(DistributedEngine, LeafHoldsItsGradientAsItWasLaidOut) {
  on_ranks(2, [](Rank& rank) {
    const Tensor weight = rank.tensor("R", {5, 4}, true);
    weight.layout()->grad_spec = rank.engine.intern(make_spec(rank.mesh, {"P(sum)"}, {5, 4}));
    const Tensor sharded = rank.tensor("S(0)", {6, 4});
    const Tensor replicated = rank.tensor("R", {6, 4});
    const Tensor partial_use = ops::linear(sharded, weight, {});
    EXPECT_EQ(planner::to_string(*gradient_spec(weight)), "[P(sum)]");
    // A use whose gradient is replicated is made to fit.
    const Tensor whole_use = ops::linear(replicated, weight, {});
    rank.mesh.reset_counters();
    autograd::backward(ops::sum(partial_use));
    autograd::backward(ops::sum(whole_use));
    for (const auto& [name, counter] : rank.mesh.counters())
      EXPECT_EQ(counter.calls, 0u) << name << " " << rank.layout(whole_use);
    const Tensor grad = weight.grad();
    EXPECT_EQ(rank.layout(grad), "[P(sum)]");
    // Ranks' gradients add up to that of one rank: column sums of both inputs.
    const Tensor total = redistribute_local(
        local_of(grad), {grad.layout()->spec, rank.engine.gradient_of(weight.layout()->spec)},
        rank.engine.context());
    const Tensor once =
        redistribute_local(local_of(sharded), {sharded.layout()->spec, replicated.layout()->spec},
                           rank.engine.context());
    const std::vector<double> expected =
        ops::sum(ops::add(once, local_of(replicated)), {0}).to_vector();
    for (int row = 0; row < 5; ++row)
      for (std::size_t c = 0; c < 4; ++c)
        EXPECT_NEAR(total.to_vector()[static_cast<std::size_t>(row) * 4 + c], expected[c], 1e-3);
  });
}

TEST(DistributedEngine, UsesOfALeafMustAgreeOnItsGradient) {
  on_ranks(2, [](Rank& rank) {
    const Tensor sharded = rank.tensor("S(0)", {6, 4}), replicated = rank.tensor("R", {6, 4});
    for (const bool partial_first : {false, true}) {
      const Tensor weight = rank.tensor("R", {5, 4}, true);
      EXPECT_EQ(weight.layout()->grad_spec, nullptr);
      const Tensor& first = partial_first ? sharded : replicated;
      const Tensor& other = partial_first ? replicated : sharded;
      ops::linear(first, weight, {});
      EXPECT_EQ(planner::to_string(*gradient_spec(weight)), partial_first ? "[P(sum)]" : "[R]");
      ops::linear(first, weight, {});
      try {
        ops::linear(other, weight, {});
        ADD_FAILURE() << "another gradient was taken";
      } catch (const FailedPrecondition& error) {
        for (const char* part : {"[P(sum)]", "[R]", "grad_spec"})
          EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
      const NoGradGuard no_grad(rank.context);
      ops::linear(other, weight, {});
    }
  });
}

TEST(DistributedEngine, BiasOfPartialProductIsAddedOnce) {
  on_ranks(3, [](Rank& rank) {
    const Tensor x = rank.tensor("S(1)", {2, 7});
    const Tensor weight = rank.tensor("S(1)", {5, 7});
    const Tensor bias = rank.tensor("R", {5}, true);
    rank.mesh.reset_counters();
    const Tensor y = ops::linear(x, weight, bias);
    EXPECT_EQ(rank.layout(y), "[P(sum)]");
    autograd::backward(ops::sum(y));
    EXPECT_EQ(rank.calls(), 0u);
    // Every rank has a gradient, though only the first has a part in it.
    ASSERT_TRUE(bias.grad().defined());
    const double mine = rank.mesh.rank() == 0 ? 2.0 : 0.0;
    for (const double g : local_of(bias.grad()).to_vector()) EXPECT_EQ(g, mine);
  });
}

TEST(DistributedEngine, DecidesOnceForEqualLayouts) {
  on_ranks(2, [](Rank& rank) {
    for (int i = 0; i < 3; ++i) ops::tanh(rank.tensor("S(0)", {5, 4}));
    EXPECT_EQ(rank.engine.decisions(), 1u);
    ops::sigmoid(rank.tensor("S(0)", {5, 4}));
    EXPECT_EQ(rank.engine.decisions(), 1u);
    ops::tanh(rank.tensor("S(0)", {6, 4}));
    EXPECT_EQ(rank.engine.decisions(), 2u);
  });
}

TEST(DistributedEngine, ForgetsLayoutsThatNobodyHolds) {
  const auto mesh =
      std::make_shared<const planner::MeshLayout>(std::vector<planner::MeshDim>{{"tp", 2}});
  SpecTable table(mesh);
  const auto spec = [&](std::int64_t rows, planner::Placement placement) {
    return std::make_shared<const planner::DTensorSpec>(mesh, planner::Placements{placement},
                                                        Shape{rows});
  };
  const planner::Placement sum = planner::Placement::partial_of(planner::PartialOp::kSum);
  const SpecPtr held = table.intern(spec(3, sum));
  EXPECT_EQ(table.intern(spec(3, sum)), held);
  EXPECT_TRUE(table.gradient_of(held)->replicated());
  for (int i = 4; i < 20; ++i) table.intern(spec(i, planner::Placement::shard(0)));
  EXPECT_EQ(table.size(), 18u);
  table.forget_unused();
  EXPECT_EQ(table.size(), 1u);
  EXPECT_EQ(table.intern(spec(3, sum)), held);
  EXPECT_EQ(table.gradient_of(held), table.gradient_of(held));
}

TEST(DistributedEngine, PlainTensorsNeedPermission) {
  on_ranks(2, [](Rank& rank) {
    const Tensor x = rank.tensor("S(0)", {5, 4});
    const Tensor plain = full(rank.context, {5, 4}, 2.0, DType::kFloat32);
    const Tensor scalar = full(rank.context, {1}, 2.0, DType::kFloat32);
    EXPECT_EQ(rank.layout(ops::mul(x, scalar)), "[S(0)]");
    try {
      ops::mul(x, plain);
      ADD_FAILURE() << "a tensor without layout was taken";
    } catch (const InvalidArgument& e) {
      EXPECT_NE(std::string(e.what()).find("mul"), std::string::npos) << e.what();
    }
    const ImplicitReplication allowed(rank.engine);
    const Tensor y = ops::mul(x, plain);
    EXPECT_EQ(rank.layout(y), "[S(0)]");
    EXPECT_EQ(local_of(y).to_vector(), ops::mul(local_of(x), 2.0).to_vector());
  });
}

TEST(DistributedEngine, RefusesMemoryAndForeignMeshes) {
  on_ranks(2, [](Rank& rank) {
    const Tensor x = rank.tensor("S(0)", {5, 4});
    EXPECT_EQ(x.shape(), (Shape{5, 4}));
    EXPECT_EQ(x.numel(), 20);
    EXPECT_THROW(x.view(), FailedPrecondition);
    EXPECT_THROW(x.to_vector(), FailedPrecondition);
    EXPECT_THROW(x.storage(), FailedPrecondition);
    DistributedEngine other({rank.mesh, rank.plans});
    const Tensor foreign = with_layout(local_of(x), x.layout()->spec, other);
    EXPECT_THROW(ops::add(x, foreign), InvalidArgument);
    // Errors about shapes are those of one rank.
    EXPECT_THROW(ops::matmul(x, x), InvalidArgument);
  });
}

TEST(DistributedEngine, CheckpointsGiveTheSameGradients) {
  on_ranks(2, [](Rank& rank) {
    const Tensor input = rank.tensor("R", {3, 4}, true);
    const Tensor up = rank.tensor("S(0)", {6, 4}, true), down = rank.tensor("S(1)", {4, 6}, true);
    const auto block = [&](const Tensor& x) {
      return ops::tanh(ops::linear(ops::tanh(ops::linear(ops::mul(x, 0.01), up, {})), down, {}));
    };
    const auto gradients = [&](bool checkpointed) {
      for (const Tensor* t : {&input, &up, &down}) t->leaf_grad()->clear();
      const Tensor x = ops::mul(input, 1.0);
      rank.mesh.reset_counters();
      autograd::backward(ops::sum(checkpointed ? autograd::checkpoint(block, x) : block(x)));
      std::vector<double> all;
      for (const Tensor* t : {&input, &up, &down})
        for (const double g : local_of(t->grad()).to_vector()) all.push_back(g);
      return all;
    };
    const std::vector<double> expected = gradients(false);
    const std::uint64_t plain_calls = rank.calls();
    EXPECT_EQ(gradients(true), expected);
    // The second forward repeats its one all_reduce.
    EXPECT_EQ(rank.calls(), plain_calls + 1);
  });
}

TEST(DistributedEngine, DropoutDoesNotDependOnTheLayout) {
  on_ranks(3, [](Rank& rank) {
    const PhiloxStream random{5, 6};
    const Shape shape{4, 5, 7};
    const Tensor whole = ops::dropout(local_of(rank.tensor("R", shape)), 0.5f, random, 3);
    const std::vector<double> expected = whole.to_vector();
    for (const char* placement : {"R", "S(0)", "S(1)", "S(2)"}) {
      const Tensor y = ops::dropout(rank.tensor(placement, shape), 0.5f, random, 3);
      const std::vector<double> mine = local_of(y).to_vector();
      const auto indices = test::held_indices(*y.layout()->spec, rank.mesh.coordinates());
      ASSERT_EQ(mine.size(), indices.size());
      for (std::size_t i = 0; i < mine.size(); ++i)
        EXPECT_EQ(mine[i], expected[static_cast<std::size_t>(indices[i])]);
    }
  });
}

TEST(DistributedEngine, LinearCrossEntropyNeverHoldsFullLogits) {
  on_ranks(2, [](Rank& rank) {
    const Tensor hidden = rank.tensor("R", {64, 4}, true);
    const Tensor weight = rank.tensor("S(0)", {4001, 4}, true);
    std::vector<std::int64_t> ids(64);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i * 61);
    const Tensor targets = with_layout(from_values(rank.context, {64}, ids),
                                       make_spec(rank.mesh, {"R"}, {64}), rank.engine);
    rank.mesh.reset_counters();
    const Tensor loss = ops::linear_cross_entropy(ops::mul(hidden, 1e-3), weight, {}, targets, {});
    EXPECT_EQ(rank.calls(), 1u);
    EXPECT_EQ(rank.layout(loss), "[R]");
    autograd::backward(loss);
    EXPECT_EQ(rank.calls(), 2u);  // and the gradient of hidden
    EXPECT_EQ(rank.layout(weight.grad()), "[S(0)]");
  });
}

// behaviours.md 5.3, explicit redistribution.
TEST(DistributedEngine, RefusesImplicitRedistributionInAStrictScope) {
  on_ranks(2, [](Rank& rank) {
    const Tensor a = rank.tensor("S(0)", {8, 4}), b = rank.tensor("S(0)", {4, 6});
    const Tensor whole = rank.tensor("R", {8, 4});
    const auto error = [](const auto& call) -> std::string {
      try {
        call();
      } catch (const FailedPrecondition& e) {
        return e.what();
      }
      return {};
    };
    rank.mesh.reset_counters();
    ops::matmul(a, b);
    EXPECT_EQ(rank.calls(), 1u);
    rank.mesh.reset_counters();
    {
      const ExplicitRedistribution strict(rank.engine);
      const std::string text = error([&] { ops::matmul(a, b); });
      EXPECT_NE(text.find("matmul"), std::string::npos) << text;
      EXPECT_NE(text.find("input 1"), std::string::npos) << text;
      EXPECT_NE(text.find("has layout [S(0)]"), std::string::npos) << text;
      EXPECT_NE(text.find("takes it in [R]"), std::string::npos) << text;
      EXPECT_NE(error([&] { ops::add(a, whole); }), "");
      {
        const ExplicitRedistribution free(rank.engine, Redistributing::kWithoutMessages);
        EXPECT_NE(error([&] { ops::matmul(a, b); }), "");
        EXPECT_EQ(rank.layout(ops::add(a, whole)), "[S(0)]");
      }
      EXPECT_NE(error([&] { ops::add(a, whole); }), "");
      EXPECT_EQ(rank.layout(ops::mul(a, a)), "[S(0)]");
    }
    EXPECT_EQ(rank.calls(), 0u);
    EXPECT_EQ(error([&] { ops::matmul(a, b); }), "");
  });
}

}  // namespace
}  // namespace meshloom::dtensor
