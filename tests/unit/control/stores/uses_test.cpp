// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/uses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>

namespace meshloom::control {
namespace {

using ::testing::ElementsAre;

/// Finds one resource by its config.
Uses::FindConfig finds(std::string name, v1::RunConfig config) {
  return [name = std::move(name), config = std::move(config)](const ConfigTest& test) {
    return test(config) ? std::optional(name) : std::nullopt;
  };
}

v1::RunConfig with_model(const std::string& id) {
  v1::RunConfig config;
  config.mutable_model()->set_name(id);
  return config;
}

TEST(Uses, WhatIsHeldHasAUserUntilAllHoldersLetGo) {
  const Uses uses;
  EXPECT_EQ(uses.holder_of("models/a"), std::nullopt);
  Hold first = uses.hold("models/a", "an export");
  Hold second = uses.hold("models/a", "an evaluation");
  EXPECT_EQ(uses.holder_of("models/a"), "an export");
  EXPECT_THAT(uses.holders_of("models/a"), ElementsAre("an export", "an evaluation"));
  EXPECT_EQ(uses.holder_of("models/"), std::nullopt) << "a whole name is meant";
  EXPECT_EQ(uses.holder_of("models/ab"), std::nullopt);
  first.release();
  EXPECT_EQ(uses.holder_of("models/a"), "an evaluation");
  second.release();
  EXPECT_EQ(uses.holder_of("models/a"), std::nullopt);
}

TEST(Uses, FindsAHolderOfAnythingBelowAPrefix) {
  const Uses uses;
  const Hold hold = uses.hold("checkpoints/job/step-1", "an export");
  EXPECT_EQ(uses.holder_below("checkpoints/job/"), "an export");
  EXPECT_EQ(uses.holder_below("checkpoints/jo/"), std::nullopt);
  EXPECT_EQ(uses.holder_below("checkpoints/jobs/"), std::nullopt);
}

TEST(Uses, AHoldMayOutliveThem) {
  std::optional<Uses> uses(std::in_place);
  Hold hold = uses->hold("plans/p", "a job");
  uses.reset();
  hold.release();
  EXPECT_FALSE(hold);
}

TEST(Uses, AConfigThatNamesAModelOrAPlanUsesIt) {
  v1::RunConfig of_job = with_model("by-job");
  of_job.mutable_data()->set_tokenizer("models/tokens");
  of_job.mutable_plan()->set_name("p");
  const Uses uses(Uses::Configs{.jobs = finds("jobs/j", of_job),
                                .runs = finds("runs/r", with_model("by-run"))});
  EXPECT_EQ(uses.user_of_model("by-job"), "jobs/j");
  EXPECT_EQ(uses.user_of_model("tokens"), "jobs/j");
  EXPECT_EQ(uses.user_of_model("by-run"), "runs/r");
  EXPECT_EQ(uses.user_of_model("other"), std::nullopt);
  EXPECT_EQ(uses.user_of_plan("p"), "jobs/j");
  EXPECT_EQ(uses.user_of_plan("by-job"), std::nullopt);
}

TEST(Uses, AHolderIsNamedBeforeAConfig) {
  const Uses uses(Uses::Configs{.jobs = finds("jobs/j", with_model("m"))});
  {
    const Hold hold = uses.hold("models/m", "a run that is being made");
    EXPECT_EQ(uses.user_of_model("m"), "a run that is being made");
    EXPECT_EQ(uses.config_with_model("m"), "jobs/j");
  }
  EXPECT_EQ(uses.user_of_model("m"), "jobs/j");
}

TEST(Uses, LooksThroughJobsThenRunsThenModels) {
  const auto any = [](const v1::RunConfig&) { return true; };
  const Uses all(Uses::Configs{
      .jobs = finds("jobs/j", {}), .runs = finds("runs/r", {}), .models = finds("models/m", {})});
  EXPECT_EQ(all.config_of(any), "jobs/j");
  EXPECT_EQ(all.config_beside_jobs(any), "runs/r");
  EXPECT_EQ(Uses(Uses::Configs{.models = finds("models/m", {})}).config_of(any), "models/m");
  EXPECT_EQ(Uses().config_of(any), std::nullopt);
}

}  // namespace
}  // namespace meshloom::control
