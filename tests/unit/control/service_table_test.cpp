// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/service_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

namespace meshloom::control {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Log = std::vector<std::string>;

/// Writes down what it is told.
class Told : public DaemonService {
 public:
  Told(Log& log, std::string name, bool fails = false)
      : log_(log), name_(std::move(name)), fails_(fails) {}
  ~Told() override { log_.push_back("~" + name_); }
  void start() override {
    if (fails_) throw std::runtime_error(name_ + " fails");
    log_.push_back("start " + name_);
  }
  void request_stop() override { log_.push_back("request " + name_); }
  void stop() override { log_.push_back("stop " + name_); }

 private:
  Log& log_;
  const std::string name_;
  const bool fails_;
};

TEST(ServiceTable, StartsInOrderAndStopsInTheOpposite) {
  Log log;
  {
    ServiceTable table;
    table.make<Told>(log, "a");
    table.make<Told>(log, "b");
    table.start();
    table.request_stop();
    table.stop();
    EXPECT_THAT(log,
                ElementsAre("start a", "start b", "request b", "request a", "stop b", "stop a"));
    log.clear();
    table.stop();
    EXPECT_THAT(log, IsEmpty()) << "each is stopped once";
  }
  EXPECT_THAT(log, ElementsAre("~b", "~a"));
}

TEST(ServiceTable, AStartThatThrowsStopsThoseThatWereStarted) {
  Log log;
  ServiceTable table;
  table.make<Told>(log, "a");
  table.make<Told>(log, "b");
  table.make<Told>(log, "c", /*fails=*/true);
  table.make<Told>(log, "d");
  try {
    table.start();
    ADD_FAILURE() << "started";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "c fails");
  }
  EXPECT_THAT(log, ElementsAre("start a", "start b", "request b", "request a", "stop b", "stop a"));
  log.clear();
  table.stop();
  EXPECT_THAT(log, ElementsAre("stop d", "stop c")) << "those that are left, each once";
  log.clear();
}

TEST(ServiceTable, APartIsStoppedBeforeTheRest) {
  Log log;
  Told door(log, "door"), work(log, "work");
  ServiceTable table;
  table.add(door);
  table.add(work);
  table.make<Told>(log, "last");
  table.start();
  log.clear();
  table.stop_through(work);
  EXPECT_THAT(log, ElementsAre("stop last", "stop work"));
  log.clear();
  table.stop_through(work);
  EXPECT_THAT(log, IsEmpty());
  table.stop();
  EXPECT_THAT(log, ElementsAre("stop door"));
}

TEST(ServiceTable, WhatWasStoppedIsNotStarted) {
  Log log;
  ServiceTable table;
  table.make<Told>(log, "a");
  const Told& b = table.make<Told>(log, "b");
  table.stop_through(b);
  table.start();
  EXPECT_THAT(log, ElementsAre("stop b", "start a"));
}

/// Its stop() waits until it is let go.
class Slow final : public DaemonService {
 public:
  void request_stop() override { requested = true; }
  void stop() override {
    stopping.set_value();
    let_go.get_future().wait();
    stopped = true;
  }
  std::promise<void> stopping, let_go;
  std::atomic<bool> requested = false, stopped = false;
};

TEST(ServiceTable, ASecondStopWaitsForTheFirstAndARequestDoesNot) {
  ServiceTable table;
  Slow& slow = table.make<Slow>();
  auto first = std::async(std::launch::async, [&] { table.stop_through(slow); });
  slow.stopping.get_future().wait();
  table.request_stop();
  EXPECT_TRUE(slow.requested);
  auto second = std::async(std::launch::async, [&] {
    table.stop();
    return slow.stopped.load();
  });
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  slow.let_go.set_value();
  first.get();
  EXPECT_TRUE(second.get());
}

}  // namespace
}  // namespace meshloom::control
