// SPDX-License-Identifier: Apache-2.0
// How much clients may leave with a daemon that cannot carry it out yet: bytes, numbers, runs.
#include <gtest/gtest.h>

#include "daemon/control/host/memory.h"
#include "tests/unit/control/run_client_fixture.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

class RunBoundsTest : public RunServiceTest {
 protected:
  static constexpr std::int64_t kMiB = 1 << 20;

  /// About 1 MiB in memory.
  static grpc::Status send(Client& client, std::int64_t seq) {
    return client.forward(seq, std::vector<int>(125'000, 1));
  }
  /// Has the ranks, so that others wait.
  Client holder() {
    Client made = with_run();
    made.wait_for(v1::RUN_STATE_READY);
    return made;
  }
};

TEST_F(RunBoundsTest, WhatIsRefusedKeepsItsNumberAndNoData) {
  options_.waiting = {.of_run = 4 * kMiB, .of_client = 64 * kMiB, .of_all = 64 * kMiB};
  start();
  Client first = holder(), client = with_run();
  std::int64_t taken = 0;
  while (send(client, taken + 1).ok()) ++taken;
  EXPECT_GE(taken, 2);
  EXPECT_LE(taken, 4);
  const std::int64_t before = process_memory().resident;
  constexpr int kRefused = 150;
  for (int i = 1; i <= kRefused; ++i)
    EXPECT_EQ(info_of(send(client, taken + 1 + i)).reason(), "VERBS_FULL");
  EXPECT_LT(process_memory().resident - before, 60 * kMiB) << "of 150 MiB that were refused";
  // Their numbers are used up: what is behind them runs when the ranks are free.
  first.close();
  client.wait_for(v1::RUN_STATE_READY);
  ASSERT_TRUE(test::eventually(
      [&] { return client.wait(taken).state() >= v1::OPERATION_STATE_SUCCEEDED; }));
  const std::int64_t next = taken + kRefused + 2;
  EXPECT_EQ(client.get().next_seq(), next);
  ASSERT_TRUE(client.get_weight(next).ok());
  EXPECT_EQ(client.wait(next).state(), v1::OPERATION_STATE_SUCCEEDED);
  // There is room again.
  ASSERT_TRUE(send(client, next + 1).ok());
}

TEST_F(RunBoundsTest, AllRunsTogetherAndThoseOfAClientHaveABound) {
  options_.waiting = {.of_run = 4 * kMiB, .of_client = 6 * kMiB, .of_all = 8 * kMiB};
  start();
  Client first = holder(), a = with_run(), b = with_run(), c = client(), d = client();
  c.client_ = "other";
  d.client_ = "third";
  ASSERT_TRUE(c.create().ok());
  ASSERT_TRUE(d.create().ok());
  const auto fill = [](Client& client) {
    std::int64_t taken = 0;
    while (send(client, taken + 1).ok()) ++taken;
    return taken;
  };
  const auto limit = [](Client& client) {
    return info_of(send(client, 100)).metadata().at("limit");
  };
  fill(a);
  EXPECT_EQ(limit(a), std::to_string(4 * kMiB));
  const std::int64_t of_b = fill(b);
  EXPECT_GE(of_b, 1);
  EXPECT_EQ(limit(b), std::to_string(6 * kMiB));
  EXPECT_GE(fill(c), 1) << "another client finds no room";
  EXPECT_EQ(limit(d), std::to_string(8 * kMiB));
  // Samples that wait count with them.
  grpc::Status drawn;
  for (int i = 0; i < 100 && drawn.ok(); ++i) drawn = a.sample(16, 4);
  EXPECT_EQ(info_of(drawn).reason(), "VERBS_FULL");
  // What a close ends gives its room back.
  a.close();
  b.close();
  ASSERT_TRUE(d.forward(102, {1}).ok());
  EXPECT_TRUE(send(d, 103).ok());
}

TEST_F(RunBoundsTest, OneClientLeavesRoomForRunsOfOthers) {
  start();
  std::vector<Client> all;
  v1::ErrorInfo refused;
  for (int i = 0; i < 100 && refused.reason().empty(); ++i) {
    Client made = client();
    const grpc::Status status = made.create();
    if (status.ok())
      all.push_back(std::move(made));
    else
      refused = info_of(status);
  }
  EXPECT_EQ(all.size(), 75u);
  EXPECT_EQ(refused.reason(), "TOO_MANY_RUNS");
  EXPECT_EQ(refused.metadata().at("used"), "75");
  Client other = client();
  other.client_ = "other";
  EXPECT_TRUE(other.create().ok());
  all.back().close();
  EXPECT_TRUE(client().create().ok());
}

}  // namespace
}  // namespace meshloom::control
