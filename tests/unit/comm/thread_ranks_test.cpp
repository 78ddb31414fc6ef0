// SPDX-License-Identifier: Apache-2.0
// Every collective on ranks that are threads, at several world sizes.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "kernels/base/error.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/comm/collectives/collectives_body.h"
#include "tests/unit/comm/collectives/soak_body.h"
#include "tests/unit/comm/failure/failure_body.h"
#include "tests/unit/comm/flight/group_body.h"
#include "tests/unit/comm/mismatch_body.h"

namespace meshloom::comm {
namespace {

using namespace std::chrono_literals;
using testing::Check;

/// Beside those of checks_on_any_hosts().
constexpr Check kChecks[] = {
    {"all_reduce_is_in_rank_order", testing::check_all_reduce_is_in_rank_order},
    {"soak", testing::check_soak},
    {"counters_and_record", testing::check_counters_and_record},
    {"topology_is_one_host", testing::check_topology_is_one_host},
};

constexpr Check kFailures[] = {
    {"frees_those_who_wait", testing::check_a_failure_frees_those_who_wait},
    {"at_random_places",
     [](RankRuntime& runtime) { testing::check_failures_at_random_places(runtime, 100); }},
    {"frees_other_groups", testing::check_a_failure_frees_other_groups},
    {"that_all_share", testing::check_a_failure_that_all_share_changes_nothing},
    {"of_two_ranks", testing::check_two_ranks_fail_at_once},
    {"while_others_are_behind", testing::check_ranks_that_are_behind_finish},
    {"joined_by_idle_ranks", testing::check_ranks_that_wait_for_nothing_can_join},
    {"with_long_reports", testing::check_long_reports},
    {"of_collectives_that_differ", testing::check_collectives_that_differ},
    {"of_many_that_differ", testing::check_many_that_differ},
};

/// Through symmetric memory, and over rings alone.
constexpr SharingMode kModes[] = {SharingMode::kAuto, SharingMode::kNone};

class ThreadRanks : public ::testing::TestWithParam<std::tuple<SharingMode, int, Check>> {};

TEST_P(ThreadRanks, Collectives) {
  const auto& [mode, world_size, check] = GetParam();
  SymmetricOptions symmetric;
  symmetric.sharing = mode;
  meshloom::testing::run_thread_ranks(world_size, check.run, 100s, symmetric);
}

std::string name_of(const ::testing::TestParamInfo<ThreadRanks::ParamType>& test) {
  const auto& [mode, world_size, check] = test.param;
  return std::string(check.name) + "_" + std::to_string(world_size) +
         (mode == SharingMode::kNone ? "_over_rings" : "");
}

INSTANTIATE_TEST_SUITE_P(
    All, ThreadRanks,
    ::testing::Combine(::testing::ValuesIn(kModes), ::testing::Values(1, 2, 3, 4, 5, 8),
                       ::testing::ValuesIn(testing::checks_on_any_hosts(kChecks))),
    name_of);

INSTANTIATE_TEST_SUITE_P(Failure, ThreadRanks,
                         ::testing::Combine(::testing::ValuesIn(kModes),
                                            ::testing::Values(1, 2, 3, 4),
                                            ::testing::ValuesIn(kFailures)),
                         name_of);

TEST(ThreadBootstrap, ExchangesInRankOrder) {
  meshloom::testing::run_thread_ranks(4, [](RankRuntime& runtime) {
    Bootstrap& bootstrap = runtime.bootstrap();
    for (int round = 0; round < 50; ++round) {
      const auto all = bootstrap.exchange(std::to_string(runtime.rank() * 100 + round));
      for (int r = 0; r < 4; ++r)
        EXPECT_EQ(all[static_cast<std::size_t>(r)], std::to_string(r * 100 + round));
      EXPECT_EQ(bootstrap.broadcast(std::to_string(runtime.rank()), round % 4),
                std::to_string(round % 4));
    }
  });
}

TEST(ThreadBootstrap, TheErrorOfTheRankThatFailedIsThrown) {
  const auto start = Clock::now();
  try {
    meshloom::testing::run_thread_ranks(3, [&](RankRuntime& runtime) {
      const auto world = runtime.make_world_group();
      if (runtime.rank() == 2) throw std::logic_error("rank 2 is broken");
      world->barrier()->wait_host();
    });
    FAIL() << "nothing was thrown";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(), "rank 2 is broken");
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
}

TEST(ThreadBootstrap, AFailedRankFreesTheOthers) {
  std::atomic<int> aborted{0};
  EXPECT_THROW(meshloom::testing::run_thread_ranks(3,
                                                   [&](RankRuntime& runtime) {
                                                     if (runtime.rank() == 0)
                                                       throw std::logic_error("rank 0 is broken");
                                                     try {
                                                       runtime.bootstrap().barrier();
                                                     } catch (const Aborted&) {
                                                       ++aborted;
                                                     }
                                                   }),
               std::logic_error);
  EXPECT_EQ(aborted, 2);
}

TEST(ThreadBootstrap, WaitHasADeadline) {
  try {
    meshloom::testing::run_thread_ranks(
        2,
        [](RankRuntime& runtime) {
          if (runtime.rank() == 0) runtime.bootstrap().barrier();
        },
        std::chrono::milliseconds(50));
    FAIL() << "the barrier did not time out";
  } catch (const DeadlineExceeded& error) {
    EXPECT_NE(std::string(error.what()).find("1 of 2 ranks"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace meshloom::comm
