// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/jobs/job_wait.h"

#include <gtest/gtest.h>

#include "daemon/cli/jobs/follow.h"
#include "tests/unit/cli/program.h"

namespace meshloom::cli {
namespace {

TEST(JobWait, GoalsAreReadStrictly) {
  EXPECT_EQ(parse_wait_goal("succeeded").kind, WaitGoal::Kind::kSucceeded);
  EXPECT_EQ(parse_wait_goal("ended").kind, WaitGoal::Kind::kEnded);
  EXPECT_EQ(parse_wait_goal("step:20").step, 20);
  EXPECT_EQ(parse_wait_goal("loss:1.5e0").loss, 1.5);
  for (const char* wrong : {"", "failed", "step:", "step:0", "step:-1", "step:1.5", "step:1x",
                            "loss:", "loss:nan", "loss:inf", "loss:1,5", "STEP:1"})
    EXPECT_THROW(parse_wait_goal(wrong), CliError) << wrong;
}

TEST(JobWait, StepsAndLossesAreThoseOfTheMetrics) {
  const WaitGoal step = parse_wait_goal("step:3"), loss = parse_wait_goal("loss:2.5");
  EXPECT_FALSE(line_reaches(step, R"({"step": 2, "loss": 9.0})"));
  EXPECT_TRUE(line_reaches(step, R"({"step": 3, "loss": null})"));
  EXPECT_TRUE(line_reaches(step, R"({"step": 4, "loss": 9.0})"));
  // A validation before the first step is none.
  EXPECT_FALSE(line_reaches(step, R"({"step": 3, "validation_loss": 1.0})"));
  EXPECT_FALSE(line_reaches(loss, R"({"step": 9, "loss": 2.6})"));
  EXPECT_TRUE(line_reaches(loss, R"({"step": 1, "loss": 2.5})"));
  EXPECT_FALSE(line_reaches(loss, R"({"step": 1, "loss": null})"));
  EXPECT_FALSE(line_reaches(loss, "no JSON"));
}

TEST(JobWait, AnEndIsTheExitCode) {
  const WaitGoal success, end = parse_wait_goal("ended"), step = parse_wait_goal("step:3");
  EXPECT_EQ(end_reaches(success, v1::JOB_STATE_SUCCEEDED), kOk);
  EXPECT_EQ(end_reaches(success, v1::JOB_STATE_FAILED), kFailed);
  EXPECT_EQ(end_reaches(success, v1::JOB_STATE_CANCELLED), kCancelled);
  for (const auto state : {v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_FAILED, v1::JOB_STATE_CANCELLED})
    EXPECT_EQ(end_reaches(end, state), kOk);
  EXPECT_EQ(end_reaches(step, v1::JOB_STATE_SUCCEEDED), kFailed);
  EXPECT_EQ(end_reaches(step, v1::JOB_STATE_CANCELLED), kCancelled);
}

TEST(JobWait, WrongGoalsAndTimesAreRefusedOnTheCommandLine) {
  EXPECT_NO_THROW(Program().app.parse("job wait a b --for step:3 --timeout 0.5"));
  EXPECT_THROW(Program().app.parse("job wait a --for steps:3"), CLI::ValidationError);
  EXPECT_THROW(Program().app.parse("job wait a --timeout 0"), CLI::ValidationError);
  EXPECT_THROW(Program().app.parse("job wait"), CLI::RequiredError);
  EXPECT_THROW(Program().app.parse("job tensorboard a"), CLI::RequiredError);
  EXPECT_NO_THROW(Program().app.parse("job watch a --notify"));
  EXPECT_NO_THROW(Program().app.parse("job submit a.yaml --follow --notify"));
  EXPECT_THROW(Program().app.parse("job submit a.yaml --notify"), CLI::RequiresError);
}

TEST(JobWait, ANoticeRingsTheBell) {
  v1::Job job;
  job.set_name("jobs/a");
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(notice_of(job), "\a\033]9;meshloom: a succeeded\033\\");
}

}  // namespace
}  // namespace meshloom::cli
