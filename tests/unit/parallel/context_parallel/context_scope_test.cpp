// SPDX-License-Identifier: Apache-2.0
// Context parallelism of tensors within a scope and of a module, and the shards of sequences.
#include "daemon/parallel/context_parallel/context_scope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "daemon/dtensor/api/to_local.h"
#include "daemon/parallel/context_parallel/context_attention.h"
#include "daemon/tensor/ops/attention.h"
#include "kernels/base/error.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/dtensor/engine_rank.h"
#include "tests/unit/parallel/context_parallel/head_run.h"

namespace meshloom::parallel {
namespace {

using planner::LoadBalancer;
using planner::Rotate;
using test::EngineRank;
using test::error_text;
using test::on_engine_mesh;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor counting(ExecutionContext& context, const Shape& shape) {
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  std::iota(values.begin(), values.end(), 0.0);
  return from_values(context, shape, values, DType::kFloat32);
}

SequenceSharding sharding_of(EngineRank& rank, LoadBalancer balancer = LoadBalancer::kHeadTail) {
  return {rank.engine, "cp", {balancer, Rotate::kPull, 0}};
}

/// Runs on a mesh of one dim, cp.
void on_sequence_ranks(int ranks, const std::function<void(EngineRank&)>& body) {
  testing::run_thread_ranks(ranks, [&](comm::RankRuntime& runtime) {
    const auto world =
        testing::make_test_world(runtime, {"world", std::chrono::seconds(20), nullptr, {}});
    testing::TestContext context;
    dtensor::DeviceMesh mesh(*world, planner::MeshLayout({{"cp", ranks}}), {});
    planner::PlanCache plans;
    dtensor::DistributedEngine engine({mesh, plans});
    EngineRank rank{context, *world, mesh, engine};
    body(rank);
  });
}

TEST(SequenceSharding, HoldsHeadsAndTailsAndIsUndoneByItsOwnLayout) {
  on_sequence_ranks(4, [](EngineRank& rank) {
    const std::vector<std::vector<double>> held{{0, 7}, {1, 6}, {2, 5}, {3, 4}};
    const Tensor part = shard_sequence(counting(rank.context, {8}), 0, sharding_of(rank));
    EXPECT_EQ(local_of(part).to_vector(), held[static_cast<std::size_t>(rank.world.rank())]);
  });
  on_sequence_ranks(2, [](EngineRank& rank) {
    const std::vector<double> part =
        local_of(shard_sequence(counting(rank.context, {32}), 0, sharding_of(rank))).to_vector();
    ASSERT_EQ(part.size(), 16u);
    const int r = rank.world.rank();
    EXPECT_EQ(part[0], 8.0 * r);
    EXPECT_EQ(part[8], 8.0 * (3 - r));
  });
  for (const LoadBalancer balancer : {LoadBalancer::kNone, LoadBalancer::kHeadTail})
    for (const auto& [shape, dim] :
         {std::pair{Shape{17}, 0}, {Shape{2, 17, 3}, 1}, {Shape{17, 2}, 0}, {Shape{2, 3, 1}, -1}})
      on_sequence_ranks(3, [&, shape = shape, dim = dim](EngineRank& rank) {
        const Tensor whole = counting(rank.context, shape);
        const auto before = rank.calls();
        const Tensor part = shard_sequence(whole, dim, sharding_of(rank, balancer));
        EXPECT_EQ(rank.calls(), before) << "sharding sends nothing";
        const Tensor again = unshard_sequence(part, dim);
        EXPECT_EQ(rank.calls(), before + 1) << "one gather";
        EXPECT_EQ(rank.calls("all_gather"), 1u);
        EXPECT_EQ(local_of(again).to_vector(), whole.to_vector());
      });
}

TEST(SequenceSharding, RowsMayDiffer) {
  on_sequence_ranks(2, [](EngineRank& rank) {
    SequenceSharding sharding = sharding_of(rank, LoadBalancer::kPerDocument);
    const std::vector<std::int64_t> one{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2},
        other{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1};
    sharding.rows = {{{.is_causal = true}, std::make_shared<planner::SequenceDocuments>(one)},
                     {{.is_causal = true}, std::make_shared<planner::SequenceDocuments>(other)}};
    const Tensor whole = counting(rank.context, {12, 2});
    const Tensor part = shard_sequence(whole, 0, sharding, 1);
    EXPECT_EQ(local_of(unshard_sequence(part, 0)).to_vector(), whole.to_vector());
    EXPECT_THAT(error_text<InvalidArgument>(
                    [&] { shard_sequence(counting(rank.context, {12}), 0, sharding); }),
                HasSubstr("2 rows are described"));
  });
}

TEST(SequenceSharding, RefusesByName) {
  on_sequence_ranks(2, [](EngineRank& rank) {
    const Tensor x = counting(rank.context, {2, 8});
    const SequenceSharding sharding = sharding_of(rank);
    EXPECT_THAT(error_text<InvalidArgument>([&] { shard_sequence(x, 2, sharding); }),
                HasSubstr("sequence dim 2 of a tensor of shape [2, 8]"));
    SequenceSharding other = sharding;
    other.mesh_dim = "sequence";
    EXPECT_THAT(error_text<InvalidArgument>([&] { shard_sequence(x, 1, other); }),
                HasSubstr("no dim 'sequence'"));
    const Tensor part = shard_sequence(x, 1, sharding);
    EXPECT_THAT(error_text<InvalidArgument>([&] { shard_sequence(part, 1, sharding); }),
                HasSubstr("is not whole"));
    EXPECT_THAT(error_text<InvalidArgument>([&] { unshard_sequence(part, 0); }),
                HasSubstr("nothing shards dim 0"));
    EXPECT_THAT(error_text<InvalidArgument>([&] { unshard_sequence(x, 0); }),
                HasSubstr("without a layout"));
    EXPECT_THAT(error_text<InvalidArgument>(
                    [&] { shard_sequence(x, 1, sharding_of(rank, LoadBalancer::kPerDocument)); }),
                HasSubstr("per_document"));
  });
}

/// q, k and v of one row, on every rank the same.
struct Whole {
  Tensor q, k, v;
  ops::SdpaOptions options;

  explicit Whole(EngineRank& rank, std::int64_t length = 17) {
    const auto head = test::random_head(2 * length, 4, 4, DType::kFloat32, 3);
    const auto make = [&](const std::vector<double>& values) {
      return from_values(rank.context, {1, 2, length, 4}, values, DType::kFloat32);
    };
    q = make(head.q);
    k = make(head.k);
    v = make(head.v);
    options.is_causal = true;
  }
  Tensor attend() const { return ops::scaled_dot_product_attention(q, k, v, options).o; }
};

void expect_near(const std::vector<double>& seen, const std::vector<double>& wanted) {
  ASSERT_EQ(seen.size(), wanted.size());
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_NEAR(seen[i], wanted[i], 1e-5);
}

TEST(ContextParallelScope, ShardsRunsAndGivesBack) {
  on_sequence_ranks(3, [](EngineRank& rank) {
    Whole x(rank);
    const std::vector<double> wanted = x.attend().to_vector();
    Tensor positions = counting(rank.context, {17}), kept = counting(rank.context, {2, 17});
    const Tensor before[] = {x.q, x.k, x.v, positions};
    {
      ContextParallelScope scope(
          sharding_of(rank),
          {{&x.q, 2}, {&x.k, -2}, {&x.v, 2}, {&positions, 0}, {&kept, 1, false}});
      for (const Tensor* sharded : {&x.q, &x.k, &x.v, &positions, &kept})
        EXPECT_TRUE(sharded->layout()->spec->placement(0).is_shard());
      EXPECT_LE(local_of(positions).numel(), 6);
      const Tensor o = x.attend();
      EXPECT_TRUE(o.layout()->spec->placement(0).is_shard());
      expect_near(local_of(unshard_sequence(o, 2)).to_vector(), wanted);
      EXPECT_EQ(scope.plans().made(), 1);
    }
    const Tensor* after[] = {&x.q, &x.k, &x.v, &positions};
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(after[i]->impl(), before[i].impl());
    EXPECT_TRUE(kept.has_layout());
    EXPECT_EQ(local_of(unshard_sequence(kept, 1)).to_vector(),
              counting(rank.context, {2, 17}).to_vector());
  });
}

TEST(ContextParallelScope, OutsideAttentionIsNotSharded) {
  on_sequence_ranks(2, [](EngineRank& rank) {
    Whole x(rank, 16);
    const std::vector<double> wanted = x.attend().to_vector();
    {
      const ContextParallelScope scope(sharding_of(rank, LoadBalancer::kNone),
                                       {{&x.q, 2, false}, {&x.k, 2, false}, {&x.v, 2, false}});
    }
    const Tensor o = x.attend();
    EXPECT_FALSE(o.layout()->spec->placement(0) == planner::Placement::shard(2));
    expect_near(dtensor::full_tensor(o).to_vector(), wanted);
  });
}

// Heads and tails of two lengths do not match under a causal mask; wherever it ends.
TEST(ContextParallelScope, CausalHeadTailTakesSequencesOfOneLength) {
  on_sequence_ranks(2, [](EngineRank& rank) {
    for (const bool bottom_right : {false, true})
      for (const LoadBalancer balancer : {LoadBalancer::kHeadTail, LoadBalancer::kMaskArea}) {
        Whole x(rank), other(rank, 12);
        x.options.causal_bottom_right = bottom_right;
        x.k = other.k;
        x.v = other.v;
        const std::vector<double> wanted = x.attend().to_vector();
        const ContextParallelScope scope(sharding_of(rank, balancer),
                                         {{&x.q, 2}, {&x.k, 2}, {&x.v, 2}});
        if (balancer == LoadBalancer::kHeadTail) {
          EXPECT_THAT(error_text<InvalidArgument>([&] { x.attend(); }),
                      HasSubstr("load_balancer head_tail with is_causal takes sequences of one "
                                "length, got 17 queries and 12 keys"));
          x.options.is_causal = false;
          EXPECT_NO_THROW(x.attend());
        } else {
          expect_near(local_of(unshard_sequence(x.attend(), 2)).to_vector(), wanted);
        }
      }
  });
}

TEST(ContextParallelScope, AnExceptionGivesBackToo) {
  on_sequence_ranks(2, [](EngineRank& rank) {
    Whole x(rank);
    const Tensor before = x.q;
    for (int again = 0; again < 2; ++again) try {
        const ContextParallelScope scope(sharding_of(rank), {{&x.q, 2}, {&x.k, 2}, {&x.v, 2}});
        EXPECT_TRUE(x.q.has_layout());
        throw std::runtime_error("inside");
      } catch (const std::runtime_error&) {
        EXPECT_EQ(x.q.impl(), before.impl());
        EXPECT_FALSE(x.v.has_layout());
      }
  });
}

TEST(ContextParallelScope, ScopesDoNotNest) {
  on_sequence_ranks(2, [](EngineRank& rank) {
    Whole x(rank);
    Tensor other = counting(rank.context, {8});
    {
      const ContextParallelScope scope(sharding_of(rank), {{&x.q, 2}, {&x.k, 2}, {&x.v, 2}});
      EXPECT_THAT(error_text<FailedPrecondition>([&] {
                    ContextParallelScope(sharding_of(rank), {{&other, 0}});
                  }),
                  HasSubstr("do not nest"));
      EXPECT_FALSE(other.has_layout());
      EXPECT_TRUE(x.attend().layout()->spec->placement(0).is_shard()) << "the outer one goes on";
    }
    enable_context_parallel(rank.engine, {});
    EXPECT_THROW(ContextParallelScope(sharding_of(rank), {{&other, 0}}), FailedPrecondition);
  });
}

TEST(ContextParallelScope, WhatItRefusesStaysAsItWas) {
  on_sequence_ranks(2, [](EngineRank& rank) {
    Tensor first = counting(rank.context, {8}), missing;
    Tensor parameter = counting(rank.context, {8}).set_requires_grad(true);
    const auto refused = [&](std::vector<SequenceBuffer> buffers) {
      const std::string text = error_text<InvalidArgument>(
          [&] { ContextParallelScope(sharding_of(rank), std::move(buffers)); });
      EXPECT_FALSE(first.has_layout());
      return text;
    };
    EXPECT_THAT(refused({{&first, 0}, {&parameter, 0}}),
                HasSubstr("buffer 1 of shape [8] is a parameter"));
    EXPECT_THAT(refused({{&first, 0}, {&first, 0}}), HasSubstr("buffer 1 is there twice"));
    EXPECT_THAT(refused({{&first, 0}, {&missing, 0}}), HasSubstr("buffer 1 is not there"));
    Tensor small = counting(rank.context, {3});
    EXPECT_THAT(refused({{&first, 0}, {&small, 1}}), HasSubstr("sequence dim 1"));
    SequenceSharding wrong = sharding_of(rank);
    wrong.plan.ulysses_degree = 2;
    EXPECT_THROW(ContextParallelScope(wrong, {{&first, 0}}), InvalidArgument);
    EXPECT_FALSE(first.has_layout());
    const ContextParallelScope fine(sharding_of(rank), {{&first, 0}});
  });
}

/// Attention as a module of its own.
class AttentionModule final : public nn::Module {
 public:
  using nn::Module::Module;
  std::span<const std::string_view> input_names() const override {
    static constexpr std::string_view kNames[] = {"query", "key", "value"};
    return kNames;
  }
  Tensor operator()(const Tensor& q, const Tensor& k, const Tensor& v) const {
    return call(std::array{q, k, v}, [](std::array<Tensor, 3>& in) {
      ops::SdpaOptions options;
      options.is_causal = true;
      return std::array{ops::scaled_dot_product_attention(in[0], in[1], in[2], options).o};
    })[0];
  }
};

TEST(ContextParallelStyle, CausalHeadTailTakesSequencesOfOneLength) {
  on_sequence_ranks(2, [](EngineRank& rank) {
    const Whole x(rank), other(rank, 12);
    AttentionModule module(rank.context);
    parallelize_attention(module, {.sharding = sharding_of(rank)});
    EXPECT_THAT(error_text<InvalidArgument>([&] { module(x.q, other.k, other.v); }),
                HasSubstr("got 17 queries and 12 keys"));
  });
}

TEST(ContextParallelStyle, SharesTheSequenceOfAModule) {
  for (const bool gathers : {false, true})
    on_sequence_ranks(3, [gathers](EngineRank& rank) {
      const Whole x(rank);
      const std::vector<double> wanted = x.attend().to_vector();
      AttentionModule module(rank.context);
      ContextParallelStyle style{.sharding = sharding_of(rank)};
      style.gathers_output = gathers;
      parallelize_attention(module, style);
      const Tensor o = module(x.q, x.k, x.v);
      EXPECT_EQ(o.layout()->spec->placement(0).is_shard(), !gathers);
      expect_near(local_of(gathers ? o : unshard_sequence(o, 2)).to_vector(), wanted);
      const Tensor part = shard_sequence(x.q, 2, style.sharding);
      expect_near(
          local_of(gathers ? module(part, x.k, x.v) : unshard_sequence(module(part, x.k, x.v), 2))
              .to_vector(),
          wanted);
      style.sequence_dims = {{"queries", 2}};
      EXPECT_THAT(error_text<InvalidArgument>([&] { parallelize_attention(module, style); }),
                  HasSubstr("no input 'queries', but query, key, value"));
    });
}

}  // namespace
}  // namespace meshloom::parallel
