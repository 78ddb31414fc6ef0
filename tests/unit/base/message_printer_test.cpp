// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/message_printer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "daemon/base/yaml_reader.h"
#include "v1/job.pb.h"

namespace meshloom::base {
namespace {

TEST(ToJson, NumbersAreNumbers) {
  v1::Job job;
  job.set_step(1LL << 60);
  job.set_state(v1::JOB_STATE_RUNNING);
  job.mutable_last_step()->set_loss(std::nan(""));
  job.mutable_resolved()->mutable_training()->set_seed(~0ULL);
  (*job.mutable_error()->mutable_info()->mutable_metadata())["rank"] = "1";
  const auto json = to_json(job);
  EXPECT_EQ(json["step"].get<std::int64_t>(), 1LL << 60);
  EXPECT_EQ(json["state"], "running");
  EXPECT_TRUE(json["last_step"]["loss"].is_null());
  EXPECT_FALSE(json["last_step"].contains("mfu"));
  EXPECT_EQ(json["resolved"]["training"]["seed"].get<std::uint64_t>(), ~0ULL);
  EXPECT_EQ(json["error"]["info"]["metadata"]["rank"], "1");
  EXPECT_TRUE(json["notes"].is_array());
}

TEST(ToJson, NumbersOfTheDaemonAreNoneOfTheJob) {
  v1::Job job;
  job.set_epoch(7);
  job.set_revision(12);
  const auto json = to_json(job);
  EXPECT_EQ(json["daemon_epoch"], 7) << "which is no epoch of the data";
  EXPECT_EQ(json["daemon_revision"], 12);
  EXPECT_FALSE(json.contains("epoch"));
  EXPECT_FALSE(json.contains("revision"));
}

TEST(ToJson, AConfigCanBeReadBack) {
  v1::JobSpec spec;
  spec.mutable_run()->mutable_optimizer()->set_type(v1::OPTIMIZER_TYPE_SGD);
  spec.mutable_run()->mutable_data()->set_path("a.txt");
  spec.mutable_run()->mutable_plan();
  const auto json = to_json(spec);
  EXPECT_EQ(json["run"]["optimizer"]["type"], "sgd");
  EXPECT_FALSE(json["run"]["data"].contains("format")) << "nothing said what it is";
  v1::JobSpec read;
  read_yaml(json.dump(2), "job.json", &read);
  EXPECT_EQ(to_json(read), json);
}

}  // namespace
}  // namespace meshloom::base
