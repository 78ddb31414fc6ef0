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

/// Forked ranks that share memory as `mode` says.
void run_checks(SharingMode mode, std::initializer_list<int> world_sizes,
                void (*check)(RankRuntime&)) {
  SymmetricOptions symmetric;
  symmetric.sharing = mode;
  for (const int world_size : world_sizes) {
    const int result = run_local_ranks(
        world_size,
        [check](RankRuntime& runtime) {
          check(runtime);
          return ::testing::Test::HasFailure() ? 1 : 0;
        },
        100s, symmetric);
    EXPECT_EQ(result, 0) << world_size << " ranks";
  }
}

TEST(LocalRanks, Collectives) {
  run_checks(SharingMode::kAuto, {1, 2, 3}, testing::check_everything);
}
TEST(LocalRanks, CollectivesOverSockets) {
  run_checks(SharingMode::kSocket, {2, 3}, testing::check_everything);
}
TEST(LocalRanks, CollectivesOverRings) {
  run_checks(SharingMode::kNone, {1, 2, 3}, testing::check_everything);
}

TEST(LocalRanks, Failures) {
  run_checks(SharingMode::kAuto, {1, 2, 4}, testing::check_all_failures);
}
TEST(LocalRanks, FailuresOverRings) {
  run_checks(SharingMode::kNone, {1, 2, 4}, testing::check_all_failures);
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
