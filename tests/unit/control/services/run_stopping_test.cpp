// SPDX-License-Identifier: Apache-2.0
// Losses that take long are left between two micro batches: cancelled, at a close, at a stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "tests/unit/control/run_client_fixture.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class RunStoppingTest : public RunServiceTest {
 protected:
  static constexpr auto kLong = 60s;

  /// Number `seq` is being computed.
  void begin_long(Client& client, std::int64_t seq) {
    client.wait_for(v1::RUN_STATE_READY);
    plan_.step_time = kLong;
    ASSERT_TRUE(client.forward_backward(seq, {1}).ok());
    Client looker = client.stranger();
    ASSERT_TRUE(test::eventually([&] {
      return looker.wait(looker.name_of(seq), 0).state() == v1::OPERATION_STATE_RUNNING;
    }));
    std::this_thread::sleep_for(100ms);
    plan_.step_time = 0ms;  // of what begins from here on
  }
  template <typename Body>
  static void expect_soon(const Body& body) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong / 4);
  }
};

TEST_F(RunStoppingTest, ACancelledOnePoisonsAndTheRunGoesOn) {
  start();
  Client client = with_run();
  begin_long(client, 1);
  client.optim_step(2);
  client.get_weight(3);
  expect_soon([&] {
    ASSERT_TRUE(client.cancel(1).ok());
    EXPECT_EQ(client.wait(1).state(), v1::OPERATION_STATE_CANCELLED);
    EXPECT_EQ(client.wait(1).error().info().reason(), "CANCELLED_BY_CLIENT");
    const v1::Operation step = client.wait(2);
    EXPECT_EQ(step.error().info().reason(), "GRADIENTS_POISONED");
    EXPECT_EQ(step.error().info().metadata().at("seq"), "1");
    EXPECT_EQ(weight(client.wait(3)), 0.0);
  });
  client.forward_backward(4, {2});
  client.optim_step(5);
  client.get_weight(6);
  EXPECT_EQ(weight(client.wait(6)), -2.0);
  EXPECT_EQ(info_of(client.cancel(4)).reason(), "OPERATION_ENDED");
}

TEST_F(RunStoppingTest, OneThatTheRanksHaveNotBegunIsLeftToo) {
  start();
  Client client = with_run();
  begin_long(client, 1);
  plan_.step_time = kLong;
  client.forward(2, {1});
  client.forward(3, {1});
  expect_soon([&] {
    for (const int seq : {3, 2, 1}) EXPECT_TRUE(client.cancel(seq).ok()) << seq;
    for (const int seq : {3, 2, 1})
      EXPECT_EQ(client.wait(seq).state(), v1::OPERATION_STATE_CANCELLED) << seq;
    plan_.step_time = 0ms;
    client.get_weight(4);
    EXPECT_EQ(client.wait(4).state(), v1::OPERATION_STATE_SUCCEEDED);
  });
}

TEST_F(RunStoppingTest, ACloseDoesNotWaitForItsEnd) {
  start();
  Client client = with_run();
  begin_long(client, 1);
  Client next = with_run();
  expect_soon([&] {
    ASSERT_TRUE(client.close().ok());
    const v1::Operation ended = client.wait(1);
    EXPECT_EQ(ended.state(), v1::OPERATION_STATE_FAILED);
    EXPECT_EQ(ended.error().info().reason(), "RUN_CLOSED");
    client.wait_for(v1::RUN_STATE_CLOSED);
    next.wait_for(v1::RUN_STATE_READY);
  });
}

TEST_F(RunStoppingTest, AStopDoesNotWaitForItsEnd) {
  start();
  Client client = with_run();
  begin_long(client, 1);
  expect_soon([&] { restart(); });
  Client after = this->client();
  after.run_ = client.run_;
  const v1::Run run = after.wait_for(v1::RUN_STATE_READY);
  EXPECT_EQ(run.next_seq(), 2);
  EXPECT_THAT(run.saved(0).name(), HasSubstr("stop-0"));
}

TEST_F(RunStoppingTest, WhatIsNoLossIsNotLeft) {
  std::promise<void> saving, go_on;
  std::atomic<bool> first{true};
  plan_.on_save_state = [&] {
    if (!first.exchange(false)) return;
    saving.set_value();
    go_on.get_future().wait();
  };
  start();
  Client client = with_run();
  client.save_state(1, "a");
  saving.get_future().wait();
  EXPECT_EQ(info_of(client.cancel(1)).reason(), "OPERATION_BEGUN");
  go_on.set_value();
  EXPECT_EQ(client.wait(1).state(), v1::OPERATION_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace meshloom::control
