// SPDX-License-Identifier: Apache-2.0
#include "daemon/events/metrics_event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "daemon/base/metrics_log.h"
#include "tests/support/temp_folder.h"

namespace meshloom::events {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::map<std::string, float> scalars(const std::optional<Event>& event) {
  std::map<std::string, float> found;
  if (event)
    for (const Summary::Value& value : event->summary().value())
      found[value.tag()] = value.simple_value();
  return found;
}

TEST(MetricsEvent, AStepsNumbersAreThoseOfItsLineInFloat32) {
  const test::TempFolder folder;
  base::MetricsLog log(folder / "metrics.jsonl", 0);
  v1::StepMetrics metrics;
  metrics.set_step(7);
  metrics.set_loss(1.0 / 3.0);
  metrics.set_grad_norm(0.1);
  metrics.set_lr(3e-4);
  metrics.set_tokens_per_second(12345.678);
  metrics.set_tokens(1 << 20);
  metrics.set_memory_bytes(std::int64_t{3} << 30);
  const auto line = log.step(metrics, {{"forward", 0.25}, {"optimizer", 0.125}});
  const auto event = metrics_event(line);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->step(), 7);
  EXPECT_GT(event->wall_time(), 1.7e9);
  EXPECT_FALSE(is_validation(*event));
  EXPECT_THAT(
      scalars(event),
      ElementsAre(Pair("memory/bytes", 3221225472.0F), Pair("seconds/forward", 0.25F),
                  Pair("seconds/optimizer", 0.125F), Pair("speed/tokens_per_second", 12345.678F),
                  Pair("train/grad_norm", 0.1F), Pair("train/loss", 1.0F / 3.0F),
                  Pair("train/lr", 3e-4F), Pair("train/tokens", 1048576.0F)));
  EXPECT_EQ(scalars(metrics_event(line.dump())), scalars(event));
}

TEST(MetricsEvent, AValidationHasEachSet) {
  const test::TempFolder folder;
  base::MetricsLog log(folder / "metrics.jsonl", 0);
  v1::ValidationMetrics metrics;
  metrics.set_step(0);
  metrics.set_loss(2.0);
  metrics.set_bits_per_byte(1.5);
  v1::SetLoss& set = *metrics.add_sets();
  set.set_set("per_byte");
  set.set_loss(1.0);
  const auto event = metrics_event(log.validation(metrics));
  ASSERT_TRUE(event);
  EXPECT_TRUE(is_validation(*event));
  EXPECT_THAT(scalars(event),
              ElementsAre(Pair("validation/bits_per_byte", 1.5F), Pair("validation/loss", 2.0F),
                          Pair("validation/perplexity", std::exp(2.0F)),
                          Pair("validation_per_byte/loss", 1.0F),
                          Pair("validation_per_byte/perplexity", std::exp(1.0F))));
}

TEST(MetricsEvent, WhatIsNotFiniteIsSoHereToo) {
  const test::TempFolder folder;
  base::MetricsLog log(folder / "metrics.jsonl", 0);
  v1::StepMetrics metrics;
  metrics.set_step(1);
  metrics.set_loss(INFINITY);
  metrics.set_grad_norm(NAN);
  metrics.set_lr(-INFINITY);
  const auto line = log.step(metrics, {});
  EXPECT_EQ(line["not_finite"], "loss=inf,grad_norm=nan,lr=-inf");
  auto found = scalars(metrics_event(line));
  EXPECT_EQ(found.at("train/loss"), INFINITY);
  EXPECT_TRUE(std::isnan(found.at("train/grad_norm")));
  EXPECT_EQ(found.at("train/lr"), -INFINITY);
  EXPECT_EQ(found.count("speed/mfu"), 0u);  // null, and not known
  // Older versions did not say which it is.
  found = scalars(metrics_event(std::string(R"({"step": 3, "loss": null, "mfu": null})")));
  EXPECT_TRUE(std::isnan(found.at("train/loss")));
  EXPECT_EQ(found.size(), 1u);
}

TEST(MetricsEvent, OtherLinesAreNone) {
  for (const char* line :
       {"", "{", "[]", "3", "{}", R"({"step": "1", "loss": 2})", R"({"step": 1.5, "loss": 2})",
        R"({"step": 1})", R"({"step": 1, "loss": "2", "other": 3})"})
    EXPECT_FALSE(metrics_event(std::string(line))) << line;
}

}  // namespace
}  // namespace meshloom::events
