// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/metrics_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/full_disk.h"
#include "tests/support/temp_folder.h"

namespace meshloom::base {
namespace {

std::vector<nlohmann::json> lines_of(const std::filesystem::path& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(MetricsLog, AResumeDropsWhatCameAfterTheCheckpoint) {
  const test::TempFolder folder;
  const auto path = folder / "metrics.jsonl";
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
  EXPECT_EQ(lines[2]["seconds_forward"], 0.25);
  EXPECT_TRUE(lines[2]["mfu"].is_null());
  EXPECT_EQ(lines[3]["validation_loss"], 2.5);
  EXPECT_DOUBLE_EQ(lines[3]["perplexity"], std::exp(2.5));
}

TEST(MetricsLog, AValidationIsOneLineWithAllSets) {
  const test::TempFolder folder;
  const auto path = folder / "metrics.jsonl";
  MetricsLog log(path, 0);
  v1::ValidationMetrics validation;
  validation.set_loss(2.5);
  for (const auto& [name, loss] : {std::pair<const char*, double>{"books", 2.0},
                                   std::pair<const char*, double>{"code", NAN}}) {
    v1::SetLoss& set = *validation.add_sets();
    set.set_set(name);
    set.set_loss(loss);
  }
  log.validation(validation);
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["validation_loss"], 2.5);
  EXPECT_EQ(lines[0]["validation_loss_books"], 2.0);
  EXPECT_DOUBLE_EQ(lines[0]["perplexity_books"], std::exp(2.0));
  EXPECT_TRUE(lines[0]["validation_loss_code"].is_null());
}

TEST(MetricsLog, BitsByByteAreNullWhereTheyAreNotKnown) {
  const test::TempFolder folder;
  const auto path = folder / "metrics.jsonl";
  MetricsLog log(path, 0);
  v1::StepMetrics step;
  log.step(step, {});
  step.set_bits_per_byte(1.25);
  log.step(step, {});
  v1::ValidationMetrics validation;
  validation.set_bits_per_byte(2.5);
  validation.add_sets()->set_set("known");
  validation.mutable_sets(0)->set_bits_per_byte(3.5);
  validation.add_sets()->set_set("tokens");
  log.validation(validation);
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(lines[0].at("bits_per_byte").is_null());
  EXPECT_EQ(lines[1]["bits_per_byte"], 1.25);
  EXPECT_EQ(lines[2]["validation_bits_per_byte"], 2.5);
  EXPECT_EQ(lines[2]["validation_bits_per_byte_known"], 3.5);
  EXPECT_TRUE(lines[2].at("validation_bits_per_byte_tokens").is_null());
}

TEST(MetricsLog, LinesSayWhenAndOfWhichAttempt) {
  const test::TempFolder folder;
  const auto path = folder / "metrics.jsonl";
  MetricsLog log(path, 0, {"job-7", 3, 100.0, {}});
  v1::StepMetrics metrics;
  metrics.set_step(1);
  log.step(metrics, {});
  v1::ValidationMetrics validation;
  validation.set_step(1);
  log.validation(validation);
  for (const auto& line : lines_of(path)) {
    EXPECT_EQ(line["job"], "job-7");
    EXPECT_EQ(line["attempt"], 3);
    EXPECT_GE(line["elapsed"].get<double>(), 100.0);
    EXPECT_LT(line["elapsed"].get<double>(), 160.0);
    EXPECT_THAT(line["time"].get<std::string>(),
                ::testing::MatchesRegex("20..-..-..T..:..:...[0-9]{3}Z"));
  }
}

TEST(MetricsLog, AJobThatBeginsWithAnothersCheckpointHasItsLinesToo) {
  const test::TempFolder folder;
  const auto first = folder / "first.jsonl", second = folder / "second.jsonl";
  {
    MetricsLog log(first, 0, {"first", 1, 0.0, {}});
    for (int step = 1; step <= 4; ++step) {
      v1::StepMetrics metrics;
      metrics.set_step(step);
      log.step(metrics, {});
    }
    v1::ValidationMetrics validation;
    validation.set_step(3);
    log.validation(validation);
  }
  const auto go_on = [&](int step, std::int64_t attempt) {
    MetricsLog log(second, step - 1, {"second", attempt, 0.0, first});
    EXPECT_EQ(log.last_validation(), -1) << "which was of the other job";
    v1::StepMetrics metrics;
    metrics.set_step(step);
    log.step(metrics, {});
  };
  go_on(4, 1);
  go_on(5, 2);
  const auto lines = lines_of(second);
  ASSERT_EQ(lines.size(), 6u);
  for (const std::size_t i : {0, 1, 2, 3}) EXPECT_EQ(lines[i]["job"], "first");
  EXPECT_EQ(lines[4]["job"], "second");
  EXPECT_EQ(lines[4]["step"], 4);
  EXPECT_EQ(lines[5]["attempt"], 2);
  EXPECT_EQ(lines_of(first).size(), 5u) << "the other job's file is as it was";
}

TEST(MetricsLog, AFullDiskCostsWholeLinesAndTheNextOneSaysHowMany) {
  const test::TempFolder folder;
  const auto path = folder / "metrics.jsonl";
  MetricsLog log(path, 0);
  const auto write = [&](int step) {
    v1::StepMetrics metrics;
    metrics.set_step(step);
    log.step(metrics, {});
  };
  write(1);
  {
    const test::FileSizeLimit full(std::filesystem::file_size(path) + 20);
    for (int step = 2; step <= 4; ++step) write(step);
  }
  write(5);
  write(6);
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1]["step"], 5);
  EXPECT_EQ(lines[1]["lost_lines"], 3);
  EXPECT_FALSE(lines[0].contains("lost_lines"));
  EXPECT_FALSE(lines[2].contains("lost_lines"));
}

}  // namespace
}  // namespace meshloom::base
