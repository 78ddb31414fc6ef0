// SPDX-License-Identifier: Apache-2.0
// A rank that fails alone inside a step: its job fails with its error, the daemon serves on.
#include <fmt/format.h>

#include "tests/e2e/daemon_fixture.h"

namespace meshloom::e2e {
namespace {

class FailuresE2e : public DaemonTest {
 protected:
  /// `plan` is one of configs/plans. With `fail_step`, `fail_rank` fails alone in that step.
  void submit_on(const std::string& plan, const std::string& name, int fail_step = 0,
                 int fail_rank = 0) {
    TinyJob job;
    job.steps = 12;
    job.checkpoint_interval = 4;
    if (fail_step > 0)
      job.extra = fmt::format("  debug: {{fail_step: {}, fail_rank: {}}}\n", fail_step, fail_rank);
    const auto result = client({"job", "submit", write_job(job, name + ".yaml"), "--name", name,
                                "--plan", plan_path(plan)});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  }
  /// Fails, is told, and leaves the checkpoint before the failure.
  void check_failure(const std::string& plan, const std::string& name, int rank) {
    submit_on(plan, name, 6, rank);
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(reaches(name, "failed", 30s)) << job(name).dump(2) << daemon_log();
    EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
    const std::string told = fmt::format("rank {} failed alone: step 6", rank);
    EXPECT_NE(job(name)["error"]["message"].get<std::string>().find(told), std::string::npos)
        << job(name).dump(2);
    EXPECT_NE(client({"job", "show", name}).output.find(told), std::string::npos);
    EXPECT_TRUE(std::filesystem::exists(state_ / "jobs" / name / "checkpoints/step-4"));
    EXPECT_EQ(step_losses(name).size(), 5u);
  }
  void run_job(const std::string& plan, const std::string& name) {
    submit_on(plan, name);
    ASSERT_TRUE(reaches(name, "succeeded", 60s)) << job(name).dump(2) << daemon_log();
  }
};

TEST_F(FailuresE2e, WithTensorParallelTheNextJobTrainsAsOnAFreshDaemon) {
  const std::string plan = "tp2";
  start();
  for (const int rank : {1, 0}) {
    const std::string name = fmt::format("bad{}", rank);
    check_failure(plan, name, rank);
    run_job(plan, fmt::format("after{}", rank));
  }
  // Every rank tells it in its log.
  for (const int rank : {0, 1}) {
    const std::string log = log_of(rank);
    EXPECT_NE(log.find("rank 1 failed alone: step 6"), std::string::npos) << log;
  }
  const std::string status = client({"status"}).output;
  EXPECT_NE(status.find("that the daemon survived: 2; the last: rank 0 failed alone"),
            std::string::npos)
      << status;
  shut_down();
  start();
  run_job(plan, "fresh");
  EXPECT_EQ(step_losses("fresh").size(), 12u);
  EXPECT_EQ(step_losses("after1"), step_losses("fresh"));
  EXPECT_EQ(step_losses("after0"), step_losses("fresh"));
}

TEST_F(FailuresE2e, OnFourRanksWithGroupsOfTwoKinds) {
  start(4);
  const std::string plan = "fsdp2_tp2";
  run_job(plan, "before");
  check_failure(plan, "bad", 2);
  run_job(plan, "after");
  EXPECT_EQ(step_losses("after"), step_losses("before"));
}

}  // namespace
}  // namespace meshloom::e2e
