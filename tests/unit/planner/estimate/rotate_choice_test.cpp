// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/rotate_choice.h"

#include <gtest/gtest.h>

#include "planner/attention/balance.h"
#include "planner/attention/schedule.h"
#include "planner/estimate/estimate.h"
#include "tests/unit/planner/estimate/models.h"
#include "tests/unit/planner/estimate/traced.h"

namespace meshloom::planner {
namespace {

constexpr SequencePlace kOneHost{1, 64};

AttentionSizes sizes_of(int ranks, std::int64_t heads, std::int64_t kv_heads) {
  return {.tokens = 4096 * ranks,
          .heads = heads,
          .kv_heads = kv_heads,
          .dims = 128,
          .dims_v = 128,
          .element_bytes = 2,
          .ranks = ranks};
}

std::string best(const AttentionSizes& sizes, const SequencePlace& place = kOneHost) {
  const RotateCost cost = rotate_costs(sizes, place).front();
  return std::string(to_string(cost.rotate)) +
         (cost.ulysses_degree > 0 ? " " + std::to_string(cost.ulysses_degree) : "");
}

TEST(RotateChoice, FewKeyHeadsArePulledAndManyAreExchanged) {
  EXPECT_EQ(best(sizes_of(2, 32, 32)), "pull");
  EXPECT_EQ(best(sizes_of(4, 32, 32)), "ulysses 4");
  EXPECT_EQ(best(sizes_of(4, 32, 8)), "pull");
  EXPECT_EQ(best(sizes_of(8, 32, 1)), "pull");
}

TEST(RotateChoice, HeadsThatDoNotDivideGoToFewerNeighbours) {
  EXPECT_EQ(best(sizes_of(8, 12, 12)), "ulysses 4");
  // No degree divides a single head.
  EXPECT_EQ(best(sizes_of(8, 1, 1)), "pull");
}

TEST(RotateChoice, FewKeysThatAreSeenArePulled) {
  AttentionSizes window = sizes_of(8, 32, 32);
  window.seen_share = 0.02;
  EXPECT_EQ(best(window), "pull");
}

TEST(RotateChoice, OtherHostsCost) {
  const AttentionSizes sizes = sizes_of(4, 32, 8);
  const auto seconds = [&](int ranks_per_host) {
    return rotate_costs(sizes, {1, ranks_per_host}).front().communication_seconds;
  };
  EXPECT_GT(seconds(2), seconds(4));
  EXPECT_GT(seconds(1), seconds(2));
  // Ranks of tp lie between those of cp.
  EXPECT_DOUBLE_EQ(rotate_costs(sizes, {2, 4}).front().communication_seconds, seconds(2));
}

TEST(RotateChoice, WhatIsReadInPlaceIsNotCopied) {
  const AttentionSizes sizes = sizes_of(4, 32, 8);
  // Of all ways of one call: what its bytes take inside a host, and what is copied besides.
  constexpr double kInsideHost = 2.5e10, kCopies = 1e11, kLatency = 2e-6;
  for (const RotateCost& cost : rotate_costs(sizes, kOneHost)) {
    double seconds = 0.0;
    for (const AttentionExchange& e :
         attention_exchanges(sizes, {LoadBalancer::kAuto, cost.rotate, cost.ulysses_degree})) {
      const double bytes = static_cast<double>(e.calls * e.elements * e.element_bytes);
      const bool keys = !e.of_heads && !e.is_ring;
      EXPECT_EQ(e.in_place, keys) << to_string(cost.rotate) << " " << e.what;
      seconds += bytes / kInsideHost + (keys ? 0.0 : e.copies * bytes / kCopies) +
                 static_cast<double>(e.calls) * kLatency;
    }
    EXPECT_DOUBLE_EQ(cost.communication_seconds, seconds) << to_string(cost.rotate);
  }
  // Beyond as many as a group has room for, all keys are gathered by copies.
  const auto gathered = [](int ranks) {
    return attention_exchanges(sizes_of(ranks, 16, 4), {LoadBalancer::kAuto, Rotate::kAllGather, 0})
        .front()
        .in_place;
  };
  EXPECT_TRUE(gathered(kMostGatheredInPlace));
  EXPECT_FALSE(gathered(kMostGatheredInPlace + 1));
}

TEST(RotateChoice, PullNeverCostsMoreThanWhatMovesAllKeys) {
  for (const int ranks : {2, 3, 5, 8, 64})
    for (const std::int64_t kv_heads : {1, 4, 16}) {
      double pull = 0.0;
      for (const RotateCost& cost : rotate_costs(sizes_of(ranks, 16, kv_heads), kOneHost)) {
        if (cost.rotate == Rotate::kPull) pull = cost.seconds();
        if (cost.rotate == Rotate::kAllGather || cost.rotate == Rotate::kAllToAll) {
          EXPECT_GT(cost.seconds(), pull) << ranks << " ranks, " << kv_heads << " kv heads";
        }
      }
    }
}

TEST(RotateChoice, NeighboursSeeWhatTheScheduleSays) {
  const nn::ModelConfig model = testing::gpt2_124m();
  const Workload work{1, 1, 960};
  for (const LoadBalancer balancer : {LoadBalancer::kNone, LoadBalancer::kHeadTail})
    for (const int ranks : {2, 4, 6}) {
      ParallelPlan plan;
      plan.context_parallel.load_balancer = balancer;
      const AttentionSizes sizes =
          attention_sizes(plan::make_model_shape(model), {1, 1, ranks, 1}, plan, work);
      const RowMask causal{{.is_causal = true}, nullptr};
      const auto held = balanced_parts(balancer, 960, ranks, causal);
      std::vector<SequencePart> parts;
      for (const IndexRanges& part : held) parts.push_back({part, part});
      std::int64_t seen = 0;
      for (int rank = 0; rank < ranks; ++rank)
        seen += remote_keys(rank, attention_schedule(rank, parts, causal));
      EXPECT_DOUBLE_EQ(sizes.seen_share, static_cast<double>(seen) / (960.0 * (ranks - 1)));
      EXPECT_NEAR(sizes.balance, balance_of(held, causal), 0.01);
    }
}

TEST(RotateChoice, APlanThatNamesAWayKeepsIt) {
  const nn::ModelConfig model = testing::gpt2_124m();
  const Workload work{4, 1, 1024};
  ParallelPlan plan;
  EXPECT_EQ(resolve_context_parallel(plan, plan::make_model_shape(model), {}, work, 8), plan)
      << "one rank moves nothing";
  const ParallelPlan chosen =
      resolve_context_parallel(plan, plan::make_model_shape(model), {1, 1, 4, 1}, work, 8);
  EXPECT_EQ(chosen.context_parallel.rotate, Rotate::kUlysses);
  EXPECT_EQ(chosen.context_parallel.ulysses_degree, 4);
  plan.context_parallel.rotate = Rotate::kAllToAll;
  EXPECT_EQ(resolve_context_parallel(plan, plan::make_model_shape(model), {1, 1, 4, 1}, work, 8),
            plan);
}

TEST(RotateChoice, AnEstimateIsOfTheWayThatIsTaken) {
  nn::ModelConfig model = testing::gpt2_124m();
  Machine machine;
  machine.name = "test";
  machine.float32_flops = machine.bfloat16_flops = 1e12;
  machine.memory_bytes_per_second = 1e11;
  const Workload work{4, 1, 1024};
  const auto bytes = [&](Rotate rotate) {
    const Estimate e =
        estimate(model, {1, 1, 4, 1}, {.context_parallel = {.rotate = rotate}}, work, machine);
    std::int64_t sum = 0;
    for (const Traffic& t : e.traffic)
      if (t.mesh_dim == "cp" && t.phase != TrafficPhase::kGradients) sum += t.bytes_sent;
    return sum;
  };
  EXPECT_EQ(bytes(Rotate::kAuto), bytes(Rotate::kUlysses));
  EXPECT_LT(bytes(Rotate::kUlysses), bytes(Rotate::kPull));
  EXPECT_LT(bytes(Rotate::kPull), bytes(Rotate::kAllGather));
}

}  // namespace
}  // namespace meshloom::planner
