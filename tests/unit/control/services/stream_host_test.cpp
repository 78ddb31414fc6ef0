// SPDX-License-Identifier: Apache-2.0
// Whose task a host of streams carries out next.
#include "daemon/control/services/stream_host.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/support/eventually.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

class StreamHostTest : public ::testing::Test {
 protected:
  ~StreamHostTest() override {
    open_ = true;
    host_.reset();
  }
  void start(int threads) {
    host_ = std::make_unique<StreamHost>(StreamHost::Options{"streams", 8, threads});
  }
  /// Tasks that end when open_ is set.
  void post(const std::string& client, int count) {
    for (int i = 0; i < count; ++i)
      host_->post(client, [this, client] {
        {
          const std::lock_guard lock(mutex_);
          order_.push_back(client);
        }
        while (!open_) std::this_thread::sleep_for(1ms);
      });
  }
  std::size_t begun() {
    const std::lock_guard lock(mutex_);
    return order_.size();
  }

  std::atomic<bool> open_ = false;
  std::mutex mutex_;
  std::vector<std::string> order_;  ///< clients, as their tasks have begun
  std::unique_ptr<StreamHost> host_;
};

TEST_F(StreamHostTest, OfFourThreadsOneClientHasThree) {
  start(4);
  post("one", 10);
  ASSERT_TRUE(test::eventually([&] { return begun() == 3; }));
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(begun(), 3u) << "the last one is left for others";
  post("two", 2);
  ASSERT_TRUE(test::eventually([&] { return begun() == 4; }));
  EXPECT_EQ(order_.back(), "two");
  open_ = true;
  EXPECT_TRUE(test::eventually([&] { return begun() == 12; }));
}

TEST_F(StreamHostTest, OfTwoThreadsOneClientMayHaveBoth) {
  start(2);
  post("one", 2);
  EXPECT_TRUE(test::eventually([&] { return begun() == 2; }));
  open_ = true;
}

TEST_F(StreamHostTest, ClientsTakeTurns) {
  start(1);
  post("one", 5);
  ASSERT_TRUE(test::eventually([&] { return begun() == 1; }));
  post("two", 2);
  post("three", 1);
  open_ = true;
  ASSERT_TRUE(test::eventually([&] { return begun() == 8; }));
  EXPECT_EQ(order_,
            (std::vector<std::string>{"one", "three", "two", "one", "two", "one", "one", "one"}));
}

TEST_F(StreamHostTest, WhatHasNotBegunIsDroppedAtTheStop) {
  start(1);
  const auto held = std::make_shared<int>(0);
  post("one", 1);
  ASSERT_TRUE(test::eventually([&] { return begun() == 1; }));
  host_->post("one", [held] { ADD_FAILURE() << "it was carried out"; });
  host_->post("two", [held] { ADD_FAILURE() << "it was carried out"; });
  std::thread opener([&] {
    std::this_thread::sleep_for(50ms);
    open_ = true;
  });
  host_->stop();
  EXPECT_EQ(held.use_count(), 1);
  host_->post("two", [held] { ADD_FAILURE() << "it was carried out"; });
  EXPECT_EQ(held.use_count(), 1);
  opener.join();
}

}  // namespace
}  // namespace meshloom::control
