// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "daemon/base/enum_names.h"
#include "daemon/base/env.h"
#include "daemon/base/message_printer.h"
#include "daemon/base/metrics_log.h"
#include "daemon/base/nearest_name.h"
#include "kernels/base/error.h"

namespace meshloom::base {
namespace {

/// The definition, by recursion.
int slow_distance(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return static_cast<int>(a.size() + b.size());
  const auto a1 = a.substr(1);
  const auto b1 = b.substr(1);
  int best = std::min({slow_distance(a1, b1) + (a[0] == b[0] ? 0 : 1), slow_distance(a1, b) + 1,
                       slow_distance(a, b1) + 1});
  if (a.size() > 1 && b.size() > 1 && a[0] == b[1] && a[1] == b[0])
    best = std::min(best, slow_distance(a.substr(2), b.substr(2)) + 1);
  return best;
}

TEST(NearestName, DistanceMatchesItsDefinition) {
  std::mt19937 random(7);
  const auto word = [&] {
    std::string text(random() % 7, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int i = 0; i < 300; ++i) {
    const auto a = word();
    const auto b = word();
    EXPECT_EQ(edit_distance(a, b), slow_distance(a, b)) << a << " " << b;
  }
}

TEST(NearestName, FarNamesAreNotOffered) {
  const std::vector<std::string> names{"steps", "seq_len", "seed"};
  EXPECT_EQ(nearest_name("step", names), "steps");
  EXPECT_EQ(nearest_name("seqlen", names), "seq_len");
  EXPECT_EQ(nearest_name("sede", names), "seed");
  EXPECT_EQ(nearest_name("zzzzzzzz", names), "");
}

TEST(EnumNames, AreTheValuesWithoutPrefix) {
  EXPECT_EQ(enum_spelling(*v1::JobState_descriptor()->FindValueByNumber(v1::JOB_STATE_SUCCEEDED)),
            "succeeded");
  EXPECT_EQ(find_enum_value(*v1::DecayType_descriptor(), "wsd")->number(), v1::DECAY_TYPE_WSD);
  EXPECT_EQ(find_enum_value(*v1::DecayType_descriptor(), "unspecified"), nullptr);
  EXPECT_EQ(enum_choices(*v1::OptimizerType_descriptor()), "adamw, adam, sgd");
}

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

std::vector<nlohmann::json> lines_of(const std::filesystem::path& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(MetricsLog, AResumeDropsWhatCameAfterTheCheckpoint) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "meshloom_metrics.jsonl";
  std::filesystem::remove(path);
  {
    MetricsLog log(path, 0);
    for (int step = 1; step <= 5; ++step) {
      v1::StepMetrics metrics;
      metrics.set_step(step);
      metrics.set_loss(step == 2 ? INFINITY : 1.0 / step);
      log.step(metrics, {{"forward", 0.25}});
    }
    v1::ValidationMetrics validation;
    validation.set_step(3);
    validation.set_loss(2.5);
    log.validation(validation);
  }
  std::ofstream(path, std::ios::app) << "{\"step\": 6, \"lo";
  { const MetricsLog log(path, 3); }
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_TRUE(lines[1]["loss"].is_null());
  EXPECT_EQ(lines[2]["seconds"]["forward"], 0.25);
  EXPECT_TRUE(lines[2]["mfu"].is_null());
  EXPECT_EQ(lines[3]["validation_loss"], 2.5);
  std::filesystem::remove(path);
}

TEST(Environment, EmptyCountsAsNotSetAndWrongValuesAreNamed) {
  ::setenv("MESHLOOM_STATE_DIR", "", 1);
  ::setenv("MESHLOOM_THREADS", "3", 1);
  EXPECT_FALSE(read_environment().state_dir.has_value());
  EXPECT_EQ(read_environment().threads, 3);
  ::setenv("MESHLOOM_THREADS", "3x", 1);
  EXPECT_THROW(read_environment(), InvalidArgument);
  ::unsetenv("MESHLOOM_STATE_DIR");
  ::unsetenv("MESHLOOM_THREADS");
}

}  // namespace
}  // namespace meshloom::base
