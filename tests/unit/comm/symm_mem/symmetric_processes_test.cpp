// SPDX-License-Identifier: Apache-2.0
// Symmetric memory among forked ranks, and what becomes of a wait when one is killed or stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>

#include "daemon/comm/mesh/local_bootstrap.h"
#include "kernels/base/error.h"
#include "tests/unit/comm/symm_mem/shared_verdict.h"
#include "tests/unit/comm/symm_mem/symmetric_body.h"

namespace meshloom::comm {
namespace {

using namespace std::chrono_literals;
using testing::files_in_shared_memory;
using ::testing::HasSubstr;
using testing::SharedVerdict;

SymmetricOptions with(SharingMode mode, PeerProcess::Watch watch = PeerProcess::Watch::kAuto) {
  SymmetricOptions options;
  options.sharing = mode;
  options.watch = watch;
  options.timeout = 20s;
  return options;
}

/// Rank 2 strikes rank 1, which waits for rank 0, which waits for rank 1 and tells what it hears.
int strike(int signal, const SymmetricOptions& options, SharedVerdict& verdict) {
  return run_local_ranks(3, [&](RankRuntime& runtime) {
    const auto world = runtime.make_world_group();
    HostSymmetricMemory memory(options);
    SymmetricGroup& symmetric = memory.enable(*world);
    const auto pids = runtime.bootstrap().exchange(std::to_string(getpid()));
    if (world->rank() == 2) {
      std::this_thread::sleep_for(50ms);
      verdict->struck_at = SharedVerdict::now();
      kill(std::stoi(pids[1]), signal);
      std::this_thread::sleep_for(600ms);
      if (signal == SIGSTOP) kill(std::stoi(pids[1]), SIGCONT);
    } else if (world->rank() == 1) {
      symmetric.wait_signal(0, 7);
    } else {
      try {
        symmetric.wait_signal(1, 7, signal == SIGSTOP ? 300ms : 20'000ms);
      } catch (const Error& error) {
        verdict.hear(error);
      }
      symmetric.put_signal(1, 7);
    }
    return 0;
  });
}

TEST(SymmetricProcesses, AllChecksByEachWay) {
  const auto before = files_in_shared_memory();
  for (const SharingMode mode :
       {SharingMode::kAuto, SharingMode::kFdFolder, SharingMode::kSocket}) {
    const int result = run_local_ranks(3, [&](RankRuntime& runtime) {
      for (const auto& check : testing::kSymmetricChecks) {
        check.run(runtime, with(mode));
        runtime.bootstrap().barrier();
        if (::testing::Test::HasFailure()) std::fprintf(stderr, "in %s\n", check.name);
      }
      return ::testing::Test::HasFailure() ? 1 : 0;
    });
    EXPECT_EQ(result, 0) << "mode " << static_cast<int>(mode);
  }
  EXPECT_EQ(files_in_shared_memory(), before);
}

TEST(SymmetricProcesses, TheSummaryNamesTheWays) {
  EXPECT_EQ(run_local_ranks(2,
                            [](RankRuntime& runtime) {
                              const auto world = runtime.make_world_group();
                              HostSymmetricMemory memory;
                              const auto& symmetric = testing::enable_on_host(memory, *world);
                              EXPECT_EQ(symmetric.sharing(1 - world->rank()), Sharing::kFdFolder);
                              EXPECT_THAT(symmetric.summary(),
                                          HasSubstr("by fd folder, watched by pidfd"));
                              runtime.bootstrap().barrier();
                              return ::testing::Test::HasFailure() ? 1 : 0;
                            }),
            0);
}

class Struck : public ::testing::TestWithParam<PeerProcess::Watch> {};

TEST_P(Struck, AKilledRankEndsTheWaitAtOnce) {
  const auto before = files_in_shared_memory();
  SharedVerdict verdict;
  EXPECT_EQ(strike(SIGKILL, with(SharingMode::kAuto, GetParam()), verdict), 128 + SIGKILL);
  EXPECT_STREQ(verdict->reason, "SYMM_MEM_PEER_GONE");
  EXPECT_THAT(verdict->text, HasSubstr("wait_signal on channel 7 of group 'world' on rank 0 of 3"));
  EXPECT_THAT(verdict->text, HasSubstr("rank 1 (pid "));
  EXPECT_LT(verdict.delay(), 500ms);
  EXPECT_EQ(files_in_shared_memory(), before);
}

TEST_P(Struck, AStoppedRankIsToldApart) {
  SharedVerdict verdict;
  EXPECT_EQ(strike(SIGSTOP, with(SharingMode::kAuto, GetParam()), verdict), 0);
  EXPECT_STREQ(verdict->reason, "SYMM_MEM_TIMEOUT");
  EXPECT_THAT(verdict->text, HasSubstr("missing rank 1, whose process"));
  EXPECT_THAT(verdict->text, HasSubstr("is stopped (SIGSTOP"));
}

INSTANTIATE_TEST_SUITE_P(Watch, Struck,
                         ::testing::Values(PeerProcess::Watch::kPidfd,
                                           PeerProcess::Watch::kStartTime));

TEST(SymmetricProcesses, ASlowRankIsRunning) {
  SharedVerdict verdict;
  const int result = run_local_ranks(2, [&](RankRuntime& runtime) {
    const auto world = runtime.make_world_group();
    HostSymmetricMemory memory;
    SymmetricGroup& symmetric = memory.enable(*world);
    if (world->rank() == 0) try {
        symmetric.barrier(0, 50ms);
      } catch (const Error& error) {
        verdict.hear(error);
      }
    runtime.bootstrap().barrier();
    return 0;
  });
  EXPECT_EQ(result, 0);
  EXPECT_THAT(verdict->text, HasSubstr("is running"));
}

TEST(SymmetricProcesses, WhatAPeerToldBeforeItEndedIsKept) {
  const int result = run_local_ranks(2, [&](RankRuntime& runtime) {
    const auto world = runtime.make_world_group();
    HostSymmetricMemory memory;
    SymmetricGroup& symmetric = memory.enable(*world);
    if (world->rank() == 1) {
      symmetric.put_signal(0, 0);
      return 0;
    }
    std::this_thread::sleep_for(100ms);
    symmetric.wait_signal(1, 0);
    EXPECT_THROW(symmetric.wait_signal(1, 0), CommError);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(result, 0);
}

TEST(SymmetricProcesses, ARankWithoutMemfdIsNamedByAll) {
  const int result = run_local_ranks(2, [&](RankRuntime& runtime) {
    const auto world = runtime.make_world_group();
    HostSymmetricMemory memory;
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit none{3, limit.rlim_max};
    if (world->rank() == 1) setrlimit(RLIMIT_NOFILE, &none);
    SymmetricGroup& symmetric = memory.enable(*world);
    setrlimit(RLIMIT_NOFILE, &limit);
    EXPECT_FALSE(symmetric.enabled());
    EXPECT_THAT(symmetric.why_not(), HasSubstr("rank 1: symmetric memory: memfd_create"));
    runtime.bootstrap().barrier();
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace meshloom::comm
