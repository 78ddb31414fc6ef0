// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/comm/flight/group_body.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "kernels/base/error.h"
#include "planner/shard.h"
#include "tests/unit/comm/comm_fixture.h"

namespace meshloom::comm::testing {

using namespace std::chrono_literals;

void check_split(RankRuntime& runtime) {
  const auto world = make_group(runtime);
  // Odd and even ranks, the even ones in reverse order.
  std::vector<std::vector<int>> parts(2);
  for (int r = 0; r < world->size(); ++r) {
    auto& part = parts[static_cast<std::size_t>(r % 2)];
    part.insert(r % 2 == 0 ? part.begin() : part.end(), r);
  }
  if (parts[1].empty()) parts.pop_back();
  const auto group = world->split(parts, "half");
  const auto& mine = parts[static_cast<std::size_t>(world->rank() % 2)];
  ASSERT_EQ(group->size(), static_cast<int>(mine.size()));
  EXPECT_EQ(mine[static_cast<std::size_t>(group->rank())], world->rank());
  EXPECT_EQ(group->name(), "half");
  // Both groups work at once without mixing up their messages.
  std::vector<std::int64_t> a(30'000, world->rank()), b(50'000, 1);
  const WorkPtr work_a = group->all_reduce(view_of(a), ReduceOp::kSum);
  const WorkPtr work_b = world->all_reduce(view_of(b), ReduceOp::kSum);
  work_b->wait_host();
  work_a->wait_host();
  EXPECT_EQ(a.back(), std::accumulate(mine.begin(), mine.end(), 0));
  EXPECT_EQ(b.back(), world->size());
  EXPECT_THROW(world->split({{0, 0}}, "wrong"), InvalidArgument);
}

void check_counters_and_record(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  const int n = group->size();
  std::vector<float> values(1'000'000, 1.0f);
  group->all_reduce(view_of(values), ReduceOp::kSum)->wait_host();
  group->barrier()->wait_host();
  const CommCounter counter = group->counter("all_reduce");
  if (n == 1) {
    EXPECT_EQ(counter.calls, 0u);
    return;
  }
  EXPECT_EQ(counter.calls, 1u);
  // Two-shot: what belongs to others goes out once, and the own part to each of them.
  const auto own = planner::shard_range(1'000'000, n, group->rank()).size();
  EXPECT_EQ(counter.bytes_sent, static_cast<std::uint64_t>(4 * (1'000'000 - own + (n - 1) * own)));
  EXPECT_EQ(group->counter("all_gather").calls, 0u);
  const std::string record = group->flight_record();
  EXPECT_NE(record.find("#0 all_reduce 4000000 bytes done"), std::string::npos) << record;
  EXPECT_NE(record.find("#1 barrier"), std::string::npos) << record;
  group->reset_counters();
  EXPECT_EQ(group->counter("all_reduce").calls, 0u);
}

void check_wrong_arguments(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  float memory[16] = {};
  TensorView strided{memory, DType::kFloat32, {4, 2}, {1, 4}, kCpuDevice};
  EXPECT_THROW(group->all_reduce(strided, ReduceOp::kSum), InvalidArgument);
  const TensorView eight = make_view(memory, DType::kFloat8E4M3, {4});
  EXPECT_THROW(group->all_reduce(eight, ReduceOp::kSum), Unimplemented);
  const TensorView flat = make_view(memory, DType::kFloat32, {4});
  EXPECT_THROW(group->broadcast(flat, group->size()), InvalidArgument);
  EXPECT_THROW(group->scatter(flat, {}, -1), InvalidArgument);
  EXPECT_THROW(group->send(flat, group->rank(), 0), InvalidArgument);
  const std::vector<TensorView> too_many(static_cast<std::size_t>(group->size() + 1), flat);
  EXPECT_THROW(group->all_gather(too_many, flat), InvalidArgument);
  // A refusal leaves the group as it was.
  group->barrier()->wait_host();
}

void check_missing_peer(RankRuntime& runtime) {
  GroupOptions options{"lonely", 200ms, nullptr, {}};
  const auto group = runtime.make_world_group(options);
  if (group->size() == 1) return;
  const int absent = group->size() - 1;
  runtime.bootstrap().barrier();
  if (group->rank() != absent) {
    std::vector<float> values(100'000, 1.0f);
    const auto start = Clock::now();
    const WorkPtr work = group->all_reduce(view_of(values), ReduceOp::kSum);
    try {
      work->wait_host();
      ADD_FAILURE() << "all_reduce without rank " << absent << " came to an end";
    } catch (const DeadlineExceeded& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("all_reduce #0 of group 'lonely' on rank"), std::string::npos) << text;
      // Which peers are missing is known of the absent one; others may have given up before.
      EXPECT_NE(text.find(std::to_string(absent)), std::string::npos) << text;
      EXPECT_NE(error.metadata().at("missing").find(std::to_string(absent)), std::string::npos);
    }
    EXPECT_LT(Clock::now() - start, 5s);
    EXPECT_THROW(group->barrier(), FailedPrecondition);
    EXPECT_NE(group->flight_record().find("failed"), std::string::npos);
  }
  runtime.bootstrap().barrier();
}

void check_abort_flag(RankRuntime& runtime) {
  AbortFlag flag;
  GroupOptions options{"aborted", 20s, &flag, {}};
  const auto group = runtime.make_world_group(options);
  if (group->size() == 1) return;
  runtime.bootstrap().barrier();
  if (group->rank() != 0) {
    std::thread raiser([&] {
      std::this_thread::sleep_for(30ms);
      flag.raised.store(true, std::memory_order_release);
    });
    const auto start = Clock::now();
    std::vector<float> values(100, 1.0f);
    EXPECT_THROW(group->all_reduce(view_of(values), ReduceOp::kSum)->wait_host(), Aborted);
    EXPECT_LT(Clock::now() - start, 5s);
    raiser.join();
  }
  runtime.bootstrap().barrier();
}

void check_dropped_work(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  if (group->size() == 1) return;
  runtime.bootstrap().barrier();
  if (group->rank() == 0) {
    std::vector<float> values(100, 1.0f);
    group->all_reduce(view_of(values), ReduceOp::kSum).reset();
    EXPECT_THROW(group->barrier(), FailedPrecondition);
  }
  runtime.bootstrap().barrier();
}

}  // namespace meshloom::comm::testing
