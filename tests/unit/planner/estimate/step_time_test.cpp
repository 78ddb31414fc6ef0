// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/step_time.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/base/error.h"
#include "planner/attention/balance.h"
#include "planner/attention/schedule.h"
#include "planner/estimate/estimate.h"
#include "planner/estimate/rotate_choice.h"
#include "tests/unit/planner/estimate/models.h"
#include "tests/unit/planner/estimate/traced.h"

namespace meshloom::planner {
namespace {

Machine machine() {
  Machine m;
  m.name = "test";
  m.float32_flops = 1e12;
  m.bfloat16_flops = 2e12;
  m.attention_efficiency = 1.0;
  m.memory_bytes_per_second = 1e15;
  return m;
}

TEST(StepTime, ComputeByHand) {
  const LocalModel local = local_model(testing::gpt2_124m(), {}, {}, {2, 1, 1024});
  const StepTime time = estimate_step_time(local, {}, machine());
  // 6 flops a token for each weight of a matrix product: layers and the tied output.
  const double weights = 12.0 * (4 * 768 * 768 + 2 * 768 * 3072) + 768.0 * 50257;
  EXPECT_NEAR(time.matmul, 2048 * 6 * weights / 1e12, 1e-6);
  // Causal scores and values: 2 S C a token forward, 7 products in all where forward has 2.
  EXPECT_NEAR(time.attention, 2048 * 12 * 3.5 * 2.0 * 1024 * 768 / 1e12, 1e-6);
  EXPECT_GT(time.utilization, 0.9);
  EXPECT_LT(time.utilization, 1.0);
}

TEST(StepTime, CheckpointsCostAForward) {
  const nn::ModelConfig model = testing::gpt2_124m();
  const auto seconds = [&](ActivationCheckpoint c) {
    return estimate_step_time(local_model(model, {}, {.checkpointing = c}, {1, 1, 1024}), {},
                              machine());
  };
  const StepTime none = seconds(ActivationCheckpoint::kNone);
  const StepTime selective = seconds(ActivationCheckpoint::kSelective);
  const StepTime full = seconds(ActivationCheckpoint::kFull);
  EXPECT_DOUBLE_EQ(selective.attention, none.attention);
  EXPECT_GT(full.attention, none.attention);
  EXPECT_DOUBLE_EQ(selective.matmul, full.matmul);
  const double layers = 12.0 * (4 * 768 * 768 + 2 * 768 * 3072);
  EXPECT_NEAR(full.matmul - none.matmul, 1024 * 2 * layers / 1e12, 1e-6);
}

TEST(StepTime, LinksInsideAndBetweenHosts) {
  Topology topology;
  topology.ranks_per_host = 4;
  topology.intra_host = {1e-6, 100e9};
  topology.inter_host = {1e-5, 10e9};
  Traffic t{.mesh_dim = "tp", .kind = CollectiveKind::kAllGather, .calls = 2, .bytes_sent = 7'000};
  EXPECT_NEAR(traffic_seconds(t, {1, 1, 1, 4}, topology), 7e3 / 100e9 + 2e-6, 1e-12);
  // 8 ranks on 2 hosts: 4 of 7 peers are on the other one.
  EXPECT_NEAR(traffic_seconds(t, {1, 1, 1, 8}, topology), 4e3 / 10e9 + 2e-5, 1e-12);
  // The outer dim's neighbours are a host apart.
  t.mesh_dim = "dp";
  EXPECT_NEAR(traffic_seconds(t, {2, 1, 1, 4}, topology), 7e3 / 10e9 + 2e-5, 1e-12);
  EXPECT_EQ(traffic_seconds(t, {1, 1, 1, 4}, topology), 0.0);
}

TEST(StepTime, RanksShareAHost) {
  Machine host = machine();
  host.shared_by_ranks = true;
  host.memory_bytes = 1'000;
  host.topology.ranks_per_host = 4;
  const Machine share = share_of_rank(host, 2);
  EXPECT_DOUBLE_EQ(share.float32_flops, 0.5e12);
  EXPECT_EQ(share.memory_bytes, 500);
  EXPECT_DOUBLE_EQ(share_of_rank(host, 100).float32_flops, 0.25e12);
}

TEST(StepTime, OverlapHidesGradients) {
  Machine m = machine();
  m.topology = {.ranks_per_host = 1, .intra_host = {0, 1e9}, .inter_host = {0, 1e9}};
  const auto run = [&](double overlap) {
    m.overlap = overlap;
    return estimate(testing::gpt2_124m(), {2, 1, 1, 1}, {}, {2, 1, 1024}, m).time;
  };
  EXPECT_NEAR(run(0.0).exposed, run(0.0).communication, 1e-12);
  EXPECT_NEAR(run(0.5).exposed, 0.5 * run(0.5).communication, 1e-9);
  EXPECT_LT(run(0.5).total, run(0.0).total);
}

TEST(Estimate, ContextParallelismDividesActivationsAndMovesKeys) {
  nn::ModelConfig model = testing::byte_gpt();
  model.max_position_embeddings = 8192;
  const Workload work{1, 1, 8192};
  const ParallelPlan pull{.context_parallel = {.rotate = Rotate::kPull}};
  const Estimate one = estimate(model, {}, {}, work, machine());
  const Estimate four = estimate(model, {1, 1, 4, 1}, pull, work, machine());
  EXPECT_NEAR(static_cast<double>(four.memory.activations),
              0.25 * static_cast<double>(one.memory.activations),
              0.05 * static_cast<double>(one.memory.activations));
  EXPECT_EQ(four.memory.parameters, one.memory.parameters);
  EXPECT_NEAR(four.time.attention, one.time.attention / 4.0, 1e-9 + 1e-6 * one.time.attention);
  // Keys as the schedule of heads and tails moves them, on the average of the ranks.
  const RowMask causal{{.is_causal = true}, nullptr};
  std::vector<SequencePart> parts;
  for (const IndexRanges& part : balanced_parts(LoadBalancer::kHeadTail, 8192, 4, causal))
    parts.push_back({part, part});
  std::int64_t keys = 0;
  for (int rank = 0; rank < 4; ++rank)
    keys += remote_keys(rank, attention_schedule(rank, parts, causal));
  const AttentionSizes sizes =
      attention_sizes(plan::make_model_shape(model), {1, 1, 4, 1}, {}, work);
  EXPECT_EQ(attention_exchanges(sizes, {.rotate = Rotate::kPull}).front().elements,
            keys / 4 * 2 * model.num_kv_heads * model.head_dim);
  const auto moved = std::count_if(four.traffic.begin(), four.traffic.end(),
                                   [](const Traffic& t) { return t.mesh_dim == "cp"; });
  EXPECT_EQ(moved, 4);  // keys twice, their gradients, and the gradients of parameters
}

// A step lasts as long as on the rank with the most heads and the most of the mask.
TEST(Estimate, AttentionTakesAsLongAsOnTheBusiestRank) {
  nn::ModelConfig model = testing::gpt2_124m();
  model.max_position_embeddings = 8192;
  const auto seconds = [&](int ranks, const ContextParallelPlan& plan) {
    return estimate(model, {1, 1, ranks, 1}, {.context_parallel = plan}, {1, 1, 8000}, machine())
        .time.attention;
  };
  const double one = estimate(model, {}, {}, {1, 1, 8000}, machine()).time.attention;
  const auto over_the_mean = [&](int ranks, const ContextParallelPlan& plan) {
    return seconds(ranks, plan) * ranks / one;
  };
  // 12 heads: 3 on the first two of five ranks, 2 on the others; 2 on the first four of eight.
  EXPECT_NEAR(over_the_mean(5, {.rotate = Rotate::kUlysses}), 15.0 / 12.0, 1e-6);
  EXPECT_NEAR(over_the_mean(8, {.rotate = Rotate::kUlysses}), 16.0 / 12.0, 1e-6);
  EXPECT_NEAR(over_the_mean(8, {.rotate = Rotate::kUlysses, .ulysses_degree = 4}), 1.0, 1e-6);
  EXPECT_NEAR(over_the_mean(10, {.rotate = Rotate::kUlysses, .ulysses_degree = 5}), 1.25, 1e-6);
  // The second half of a causal sequence sees three quarters of it.
  EXPECT_NEAR(over_the_mean(2, {LoadBalancer::kNone, Rotate::kPull, 0}), 1.5, 1e-6);
  EXPECT_NEAR(over_the_mean(5, {.rotate = Rotate::kPull}), 1.0, 1e-6);
}

TEST(Estimate, RefusesWhatCannotRun) {
  const nn::ModelConfig model = testing::byte_gpt();
  const Workload work{4, 1, 64};
  EXPECT_THROW(estimate(model, {1, 1, 65, 1}, {}, work, machine()), InvalidArgument);
  EXPECT_THROW(estimate(model, {1, 1, 1, 2}, {}, work, machine()), InvalidArgument);
  EXPECT_THROW(estimate(model, {1, 2, 1, 1}, {}, work, machine()), InvalidArgument);
  EXPECT_THROW(estimate(model, {}, {.sequence_parallel = true}, work, machine()), InvalidArgument);
  EXPECT_THROW(estimate(model, {}, {}, {4, 8, 64}, machine()), InvalidArgument);
  EXPECT_THROW(estimate(model, {}, {}, {4, 1, 257}, machine()), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::planner
