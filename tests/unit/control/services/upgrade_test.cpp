// SPDX-License-Identifier: Apache-2.0
// State dirs of daemons before objects had owners: what they hold is the admins'.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/source_folder.h"
#include "tests/unit/control/whole_daemon.h"

namespace meshloom::control {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// The journal of a daemon with version 4: a job that has ended and one that waits, a run, a model,
/// a plan, and that it is drained.
class UpgradeTest : public ::testing::Test {
 protected:
  template <typename Request, typename Response>
  Response list(const Identity& who, const std::string& service) {
    Response response;
    const grpc::Status status = daemon_.ask(who, service, Request(), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  std::vector<std::string> jobs(const Identity& who) {
    std::vector<std::string> names;
    const auto listed = list<v1::ListJobsRequest, v1::ListJobsResponse>(who, "JobService");
    for (const v1::Job& job : listed.jobs()) names.push_back(job.name());
    return names;
  }

  const std::filesystem::path journal_ =
      test::source_file("tests/golden/journal/version-4.journal");
  WholeDaemon daemon_{{}, journal_};
};

TEST_F(UpgradeTest, WhatHasNoOwnerIsTheAdmins) {
  EXPECT_THAT(jobs(Identity::admin()), ElementsAre("jobs/finished", "jobs/waits"));
  EXPECT_THAT(jobs({"another", Role::kAdmin}), ElementsAre("jobs/finished", "jobs/waits"));
  EXPECT_THAT(jobs(kAlice), IsEmpty());
  const auto runs =
      list<v1::ListRunsRequest, v1::ListRunsResponse>(Identity::admin(), "RunService");
  ASSERT_EQ(runs.runs_size(), 1);
  EXPECT_EQ(runs.runs(0).name(), "runs/driven");
  EXPECT_EQ(runs.runs(0).owner(), "");
  const auto models =
      list<v1::ListModelsRequest, v1::ListModelsResponse>(Identity::admin(), "ModelService");
  ASSERT_EQ(models.models_size(), 1);
  EXPECT_EQ(models.models(0).name(), "models/kept");
  EXPECT_EQ((list<v1::ListPlansRequest, v1::ListPlansResponse>(Identity::admin(), "PlanService"))
                .plans_size(),
            1);
  EXPECT_EQ(
      (list<v1::ListModelsRequest, v1::ListModelsResponse>(kAlice, "ModelService")).models_size(),
      0);
}

TEST_F(UpgradeTest, WhatWaitedGoesOnAndIsGivenAway) {
  EXPECT_THAT(daemon_.jobs().waiting(), ElementsAre("waits"));
  v1::GiveJobRequest give;
  give.set_name("waits");
  give.set_owner("alice");
  v1::GiveJobResponse given;
  ASSERT_TRUE(daemon_.ask(Identity::admin(), "AccessService", give, &given).ok());
  EXPECT_THAT(jobs(kAlice), ElementsAre("jobs/waits"));
}

TEST_F(UpgradeTest, TheJournalIsOfThisVersionFromThenOn) {
  std::ifstream journal(daemon_.state().journal(), std::ios::binary);
  std::string header(12, '\0');
  journal.read(header.data(), static_cast<std::streamsize>(header.size()));
  EXPECT_EQ(header.substr(0, 8), std::string("MLJOURN\n"));
  EXPECT_EQ(header[8], 5) << "an earlier daemon would let anybody have what is somebody's";
}

}  // namespace
}  // namespace meshloom::control
