// SPDX-License-Identifier: Apache-2.0
// Ranks as forked processes: the same collectives, and what becomes of them when one dies.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "daemon/comm/mesh/local_bootstrap.h"
#include "tests/unit/comm/collectives/collectives_body.h"
#include "tests/unit/comm/failure/failure_body.h"

namespace meshloom::comm {
namespace {

using namespace std::chrono_literals;

TEST(LocalRanks, Collectives) {
  for (const int world_size : {1, 2, 3}) {
    const int result = run_local_ranks(world_size, [](RankRuntime& runtime) {
      testing::check_everything(runtime);
      return ::testing::Test::HasFailure() ? 1 : 0;
    });
    EXPECT_EQ(result, 0) << world_size << " ranks";
  }
}

TEST(LocalRanks, Failures) {
  for (const int world_size : {1, 2, 4}) {
    const int result = run_local_ranks(world_size, [](RankRuntime& runtime) {
      testing::check_all_failures(runtime);
      return ::testing::Test::HasFailure() ? 1 : 0;
    });
    EXPECT_EQ(result, 0) << world_size << " ranks";
  }
}

TEST(LocalRanks, BootstrapExchanges) {
  const int result = run_local_ranks(3, [](RankRuntime& runtime) {
    const std::string mine(static_cast<std::size_t>(runtime.rank() * 300'000),
                           static_cast<char>('a' + runtime.rank()));
    const auto all = runtime.bootstrap().exchange(mine);
    if (all.size() != 3 || all[0] != "" || all[1] != std::string(300'000, 'b')) return 1;
    if (runtime.bootstrap().broadcast(mine, 2) != std::string(600'000, 'c')) return 2;
    return 0;
  });
  EXPECT_EQ(result, 0);
}

TEST(LocalRanks, TheFirstFailureIsTheResult) {
  EXPECT_EQ(run_local_ranks(2, [](RankRuntime& runtime) { return runtime.rank() == 1 ? 7 : 0; }),
            7);
  EXPECT_EQ(run_local_ranks(
                2, [](RankRuntime&) -> int { throw std::runtime_error("expected by the test"); }),
            1);
}

TEST(LocalRanks, AKilledRankTakesTheOthersWithIt) {
  const auto start = std::chrono::steady_clock::now();
  const int result = run_local_ranks(2, [](RankRuntime& runtime) {
    if (runtime.rank() == 1) kill(getpid(), SIGKILL);
    std::this_thread::sleep_for(60s);
    return 0;
  });
  EXPECT_EQ(result, 128 + SIGKILL);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
}

TEST(LocalRanks, ADeadPeerIsNamedByTheBootstrap) {
  const int result = run_local_ranks(2, [](RankRuntime& runtime) {
    if (runtime.rank() == 1) return 0;
    try {
      runtime.bootstrap().barrier();
    } catch (const std::exception& error) {
      return std::string(error.what()).find("rank 1 is gone") != std::string::npos ? 3 : 4;
    }
    return 5;
  });
  EXPECT_EQ(result, 3);
}

}  // namespace
}  // namespace meshloom::comm
