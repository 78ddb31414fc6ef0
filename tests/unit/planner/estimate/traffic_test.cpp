// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/traffic.h"

#include <gtest/gtest.h>

#include "daemon/comm/mesh/local_bootstrap.h"
#include "daemon/comm/process_group.h"
#include "planner/gradient_buckets.h"
#include "planner/shard.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/planner/estimate/models.h"
#include "tests/unit/planner/estimate/traced.h"

namespace meshloom::planner {
namespace {

using Kind = CollectiveKind;

TEST(Traffic, BytesSentByHand) {
  // Large and even: 2 (W - 1) / W of the tensor, and half of that.
  EXPECT_EQ(bytes_sent(Kind::kAllReduce, 1 << 20, 4, 4), 2 * 3 * (1 << 20));
  EXPECT_EQ(bytes_sent(Kind::kAllGather, 1 << 20, 4, 4), 3 * (1 << 20));
  EXPECT_EQ(bytes_sent(Kind::kReduceScatter, 1 << 20, 4, 4), 3 * (1 << 20));
  // Up to 32 KiB to everyone at once.
  EXPECT_EQ(bytes_sent(Kind::kAllReduce, 8192, 4, 3), 2 * 32768);
  // 10 over 4 ranks: 3, 3, 3, 1.
  EXPECT_EQ(bytes_sent(Kind::kAllGather, 10, 2, 4), 3 * 3 * 2);
  EXPECT_EQ(bytes_sent(Kind::kReduceScatter, 10, 2, 4), 7 * 2);
}

/// What rank 0's process group counted.
std::uint64_t counted(Kind kind, std::int64_t elements, int size) {
  std::uint64_t bytes = 0;
  meshloom::testing::run_thread_ranks(size, [&](comm::RankRuntime& runtime) {
    const auto world = runtime.make_world_group({});
    std::vector<float> data(static_cast<std::size_t>(elements), 1.0f);
    std::vector<TensorView> parts;
    for (int r = 0; r < size; ++r) {
      const ShardRange range = shard_range(elements, size, r);
      parts.push_back(make_view(data.data() + range.begin, DType::kFloat32, {range.size()}));
    }
    const TensorView own = parts[static_cast<std::size_t>(world->rank())];
    std::vector<float> sum(static_cast<std::size_t>(own.numel()));
    const TensorView output = make_view(sum.data(), DType::kFloat32, {own.numel()});
    switch (kind) {
      case Kind::kAllReduce:
        world->all_reduce(make_view(data.data(), DType::kFloat32, {elements}), comm::ReduceOp::kSum)
            ->wait_host();
        break;
      case Kind::kAllToAll: ADD_FAILURE() << "not asked for"; break;
      case Kind::kAllGather: world->all_gather(parts, own)->wait_host(); break;
      case Kind::kReduceScatter:
        world->reduce_scatter(output, parts, comm::ReduceOp::kSum)->wait_host();
        break;
    }
    if (world->rank() == 0) bytes = world->counter(to_string(kind)).bytes_sent;
    return 0;
  });
  return bytes;
}

TEST(Traffic, BytesSentAreThoseThatProcessGroupsCount) {
  for (const Kind kind : {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter})
    for (const int size : {2, 3, 4})
      for (const std::int64_t elements : {1, 5, 8192, 8193, 100'003})
        EXPECT_EQ(static_cast<std::uint64_t>(bytes_sent(kind, elements, 4, size)),
                  counted(kind, elements, size))
            << to_string(kind) << " of " << elements << " among " << size;
}

std::int64_t calls(const std::vector<Traffic>& traffic, Kind kind, TrafficPhase phase) {
  std::int64_t sum = 0;
  for (const Traffic& t : traffic)
    if (t.kind == kind && t.phase == phase) sum += t.calls;
  return sum;
}

TEST(Traffic, NothingOnOneRank) {
  EXPECT_TRUE(step_traffic(local_model(testing::byte_gpt(), {}, {}, {4, 4, 256})).empty());
}

// Megatron's two all_reduces a layer each way; with sequence parallelism each becomes a
// reduce_scatter and an all_gather, of the same bytes together.
TEST(Traffic, TensorParallelLayersByHand) {
  const nn::ModelConfig model = testing::byte_gpt();
  const Workload work{4, 4, 256};
  const auto plain =
      step_traffic(local_model(model, {1, 1, 1, 2}, {.tensor_parallel = true}, work));
  EXPECT_EQ(calls(plain, Kind::kAllReduce, TrafficPhase::kForward), 1 + 2 * 6);
  EXPECT_EQ(calls(plain, Kind::kAllGather, TrafficPhase::kForward), 1);
  EXPECT_EQ(calls(plain, Kind::kAllReduce, TrafficPhase::kBackward), 1 + 2 * 6);
  const std::int64_t stream = 4 * 256 * 384 * 4;
  // The loss gathers two floats a token; row-wise biases are summed.
  const std::int64_t loss = 4 * 256 * 2 * 4, biases = 6 * 2 * 384 * 4;
  EXPECT_EQ(total_bytes_sent(plain), (14 + 12) * stream + loss + biases);

  const auto sequence = step_traffic(
      local_model(model, {1, 1, 1, 2}, {.tensor_parallel = true, .sequence_parallel = true}, work));
  EXPECT_EQ(calls(sequence, Kind::kReduceScatter, TrafficPhase::kForward), 13);
  EXPECT_EQ(calls(sequence, Kind::kAllGather, TrafficPhase::kForward), 13 + 1);
  EXPECT_EQ(calls(sequence, Kind::kReduceScatter, TrafficPhase::kBackward), 13);
  EXPECT_EQ(calls(sequence, Kind::kAllGather, TrafficPhase::kBackward), 13);
}

TEST(Traffic, DataParallelGradientsGoRoundOnce) {
  const nn::ModelConfig model = testing::gpt2_124m();
  const auto traffic = step_traffic(local_model(model, {4, 1, 1, 1}, {}, {32, 2, 64}));
  ASSERT_EQ(traffic.size(), 1u);
  const double whole = 4.0 * static_cast<double>(parameter_count(model));
  EXPECT_NEAR(static_cast<double>(total_bytes_sent(traffic)) / whole, 1.5, 1e-4);

  // The buckets that training fills.
  std::vector<std::int64_t> sizes;
  const StyledModel all = styled_model(model, {}, 1);
  for (const ModelParameter& p : parameters_of(all.before)) sizes.push_back(numel(p.shape));
  for (int layer = 0; layer < 12; ++layer)
    for (const ModelParameter& p : parameters_of(all.block)) sizes.push_back(numel(p.shape));
  for (const ModelParameter& p : parameters_of(all.after)) sizes.push_back(numel(p.shape));
  const auto buckets = plan_gradient_buckets(sizes, (8 << 20) / 4);
  std::int64_t sent = 0;
  for (const GradientBucket& b : buckets)
    sent += bytes_sent(Kind::kAllReduce, b.size + static_cast<std::int64_t>(b.slots.size()), 4, 4);
  EXPECT_EQ(traffic[0].calls, static_cast<std::int64_t>(buckets.size()));
  EXPECT_EQ(total_bytes_sent(traffic), sent);
}

TEST(Traffic, FullyShardGathersTwiceAndScattersOnceAMicroBatch) {
  const nn::ModelConfig model = testing::gpt2_124m();
  ParallelPlan plan{.fully_shard = true, .dtype = DType::kBFloat16};
  const auto sent = [&] {
    return static_cast<double>(
        total_bytes_sent(step_traffic(local_model(model, {1, 4, 1, 1}, plan, {32, 4, 64}))));
  };
  const double root = 50257.0 * 768 + 1024.0 * 768 + 2 * 768;
  const double layers = static_cast<double>(parameter_count(model)) - root;
  EXPECT_NEAR(sent() / (2 * 0.75 * (layers * (2 + 2 * 11.0 / 12 + 4) + root * (2 + 4))), 1.0, 1e-3);
  plan.shards.reshard_after_forward = false;
  EXPECT_NEAR(sent() / (2 * 0.75 * (layers * (2 + 4) + root * (2 + 4))), 1.0, 1e-3);
}

}  // namespace
}  // namespace meshloom::planner
