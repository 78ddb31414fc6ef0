// SPDX-License-Identifier: Apache-2.0
// Ranks of cp that are killed or stopped while keys travel: named within two seconds by those that
// wait for their keys, and after a restart the job ends with the losses of an undisturbed one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <thread>

#include "tests/e2e/daemon_fixture.h"

namespace meshloom::e2e {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 3;
constexpr int kLongSteps = 350;

class ContextParallelE2e : public DaemonTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static TinyJob long_job() {
    TinyJob job;
    job.steps = kLongSteps;
    job.checkpoint_interval = 50;
    job.plan = fmt::format("{{dtype: float32, context_parallel: {{rotate: {}}}}}", GetParam());
    job.extra = fmt::format("  mesh: {{cp: {}}}\n", kRanks);
    return job;
  }
  void start_ranks() {
    // mpirun leaves the others time to tell who died, and ends up to twice that time after them; a
    // collective gives up before the watch does.
    ::setenv("OMPI_MCA_odls_base_sigkill_timeout", "4", 1);
    start_with("collective_timeout_ms: 1000\nrank_timeout_ms: 20000\n", kRanks);
    ::unsetenv("OMPI_MCA_odls_base_sigkill_timeout");
  }
  std::string told_by_others() const {
    std::string told;
    for (const int rank : {0, 2})
      told += log_of(rank) + read_file(state_ / fmt::format("logs/flight-rank-{}.txt", rank));
    return told;
  }
  /// Sends rank 1 a signal at `step` of the job; the others say what became of its process.
  void disturb(const std::string& name, int step, int signal, const std::string& became) {
    ASSERT_TRUE(reaches_step(name, step)) << daemon_log();
    const pid_t pid = pids_[1];
    const std::string text = fmt::format("process {} is {}", pid, became);
    const auto told = [&] { return told_by_others().find(text) != std::string::npos; };
    // A rank that is stopped between two steps keeps nobody waiting for keys: it goes on, and is
    // stopped at another moment.
    bool named = false;
    for (int attempt = 0; attempt < 8 && !named; ++attempt) {
      const auto begin = Clock::now();
      ::kill(pid, signal);
      named = eventually(2s, told);
      EXPECT_LT(Clock::now() - begin, 3s);
      ::kill(pid, SIGCONT);
      if (!named) std::this_thread::sleep_for(50ms * (attempt + 1));
    }
    EXPECT_TRUE(named) << daemon_log();
    EXPECT_NE(wait_for_end(40s), 0);
  }
};

TEST_P(ContextParallelE2e, ADeadAndAStoppedRankAreNamedAndTheJobGoesOnBitForBit) {
  start_ranks();
  submit(long_job(), "whole");
  ASSERT_TRUE(reaches("whole", "succeeded", 120s)) << job("whole").dump(2) << daemon_log();
  submit(long_job(), "disturbed");
  disturb("disturbed", 75, SIGKILL, "");
  start_ranks();
  disturb("disturbed", 175, SIGSTOP, "stopped (SIGSTOP");
  start_ranks();
  ASSERT_TRUE(reaches("disturbed", "succeeded", 120s)) << job("disturbed").dump(2) << daemon_log();
  EXPECT_EQ(job("disturbed")["attempt"], 3);
  EXPECT_EQ(step_losses("whole").size(), static_cast<std::size_t>(kLongSteps));
  EXPECT_EQ(step_losses("whole"), step_losses("disturbed"));
  shut_down();
}

INSTANTIATE_TEST_SUITE_P(Rotate, ContextParallelE2e,
                         ::testing::Values("allgather", "alltoall", "pull", "ulysses"),
                         [](const auto& way) { return std::string(way.param); });

}  // namespace
}  // namespace meshloom::e2e
