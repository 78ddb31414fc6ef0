// SPDX-License-Identifier: Apache-2.0
// Checks on forked ranks in each way in which these hand memory to each other.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "daemon/comm/mesh/local_bootstrap.h"

namespace meshloom::comm::testing {

/// No expectation of the body may fail on any rank.
inline void run_process_ranks(int ranks, const std::function<void(RankRuntime&)>& body) {
  for (const SharingMode mode : {SharingMode::kFdFolder, SharingMode::kSocket}) {
    SymmetricOptions symmetric;
    symmetric.sharing = mode;
    const auto run = [&](RankRuntime& runtime) {
      body(runtime);
      return ::testing::Test::HasFailure() ? 1 : 0;
    };
    EXPECT_EQ(run_local_ranks(ranks, run, std::chrono::seconds(100), symmetric), 0);
  }
}

}  // namespace meshloom::comm::testing
