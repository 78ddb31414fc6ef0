// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/metrics_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

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
  EXPECT_EQ(lines[2]["seconds"]["forward"], 0.25);
  EXPECT_TRUE(lines[2]["mfu"].is_null());
  EXPECT_EQ(lines[3]["validation_loss"], 2.5);
}

}  // namespace
}  // namespace meshloom::base
