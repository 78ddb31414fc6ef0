// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/background_thread.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <thread>

#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

int niceness() { return ::getpriority(PRIO_PROCESS, 0); }

TEST(BackgroundThread, WorkGivesWayAndTheCallersThreadDoesNot) {
  const int before = niceness();
  int during = before;
  run_in_background([&] { during = niceness(); });
  EXPECT_GE(during, 10);
  EXPECT_EQ(niceness(), before);
}

TEST(BackgroundThread, WhatItThrowsIsTheCallers) {
  EXPECT_THROW(run_in_background([] { throw DataLoss("half of it"); }), DataLoss);
}

TEST(BackgroundThread, AThreadThatGivesWayDoesSoAlone) {
  const int before = niceness();
  std::thread([] { give_way_to_training(); }).join();
  EXPECT_EQ(niceness(), before);
}

}  // namespace
}  // namespace meshloom::control
