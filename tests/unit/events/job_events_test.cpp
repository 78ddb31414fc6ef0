// SPDX-License-Identifier: Apache-2.0
#include "daemon/events/job_events.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "daemon/base/utf8.h"
#include "daemon/events/event_record.h"
#include "tests/support/temp_folder.h"

namespace meshloom::events {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// All events of a folder, in the order in which TensorBoard reads its files.
std::vector<Event> events_of(const std::filesystem::path& folder) {
  std::set<std::filesystem::path> files;
  for (const auto& item : std::filesystem::directory_iterator(folder)) files.insert(item.path());
  std::vector<Event> events;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    for (Event& event : read_events(bytes).events) events.push_back(std::move(event));
  }
  return events;
}

/// The losses that TensorBoard shows: START takes away what was told of its step and those behind.
std::vector<std::pair<std::int64_t, float>> shown_losses(const std::filesystem::path& folder) {
  std::vector<std::pair<std::int64_t, float>> losses;
  for (const Event& event : events_of(folder)) {
    if (event.session_log().status() == SessionLog::START)
      std::erase_if(losses, [&](const auto& item) { return item.first >= event.step(); });
    for (const Summary::Value& value : event.summary().value())
      if (value.tag() == "train/loss") losses.emplace_back(event.step(), value.simple_value());
  }
  return losses;
}

std::string line_of(int step, double loss) {
  return fmt::format(R"({{"step": {}, "time": "2026-01-31T12:00:00.250Z", "loss": {}}})", step,
                     loss);
}

v1::Job a_job() {
  v1::Job job;
  job.set_name("jobs/a");
  job.set_attempt(1);
  job.set_create_time("2026-01-31T12:00:00Z");
  job.mutable_spec()->set_name("a");
  job.mutable_resolved()->mutable_optimizer()->set_lr(0.5);
  job.mutable_resolved()->mutable_data()->set_path("text.txt");
  job.mutable_resolved()->mutable_training()->set_deterministic(true);
  job.add_notes("first");
  return job;
}

std::string text_of(const Event& event) { return event.summary().value(0).tensor().string_val(0); }

TEST(JobEvents, ALaterAttemptTakesAwayWhatTheEarlierHadBehindItsCheckpoint) {
  const test::TempFolder folder;
  v1::Job job = a_job();
  {
    JobEvents events(folder.path(), job, 0);
    EXPECT_TRUE(events.is_first());
    for (int step = 1; step <= 5; ++step) events.line(line_of(step, step));
  }
  job.set_attempt(2);
  JobEvents events(folder.path(), job, 3);
  EXPECT_FALSE(events.is_first());
  for (int step = 4; step <= 6; ++step) events.line(line_of(step, step + 100));
  EXPECT_THAT(shown_losses(folder.path()),
              ElementsAre(std::pair(1, 1.0F), std::pair(2, 2.0F), std::pair(3, 3.0F),
                          std::pair(4, 104.0F), std::pair(5, 105.0F), std::pair(6, 106.0F)));
  events.go_back(4);
  events.line(line_of(5, 9.0));
  EXPECT_THAT(shown_losses(folder.path()).back(), std::pair(5, 9.0F));
}

TEST(JobEvents, EveryNthStepIsThereAndEachValidation) {
  const test::TempFolder folder;
  {
    std::ofstream lines(folder / "metrics.jsonl");
    for (int step = 1; step <= 7; ++step) {
      lines << line_of(step, step) << "\n";
      lines << R"({"step": )" << step << R"(, "validation_loss": 2.0})"
            << "\n";
    }
    lines << R"({"step": 9, "lo)";
  }
  JobEvents events(folder / "tensorboard", a_job(), 0, 3);
  events.lines_of(folder / "metrics.jsonl");
  events.line(line_of(8, 8.0));
  events.line(line_of(9, 9.0));
  EXPECT_THAT(shown_losses(folder / "tensorboard"),
              ElementsAre(std::pair(3, 3.0F), std::pair(6, 6.0F), std::pair(9, 9.0F)));
  int validations = 0;
  for (const Event& event : events_of(folder / "tensorboard"))
    for (const Summary::Value& value : event.summary().value())
      validations += value.tag() == "validation/loss" ? 1 : 0;
  EXPECT_EQ(validations, 7);
}

TEST(JobEvents, TextsAreUtf8WhateverTheyWere) {
  const test::TempFolder folder;
  JobEvents events(folder.path(), a_job(), 0);
  events.note(std::string("quote \" line\nnul \0 bad \xff", 24), 2);
  v1::DrawnSample sample;
  sample.set_step(3);
  sample.set_text(std::string(1 << 20, 'a'));
  events.samples({&sample, 1});
  events.plan("wte: S(0)\nwpe: R", 0);
  std::map<std::string, std::string> texts;
  for (const Event& event : events_of(folder.path())) {
    if (event.summary().value().empty()) continue;
    const Summary::Value& value = event.summary().value(0);
    if (value.metadata().plugin_data().plugin_name() != "text") continue;
    EXPECT_EQ(value.tensor().dtype(), 7);
    EXPECT_TRUE(base::is_utf8(text_of(event)));
    texts[value.tag()] = text_of(event);
  }
  EXPECT_EQ(texts.at("notes"), "quote \" line\nnul \\x00 bad \\xff");
  EXPECT_LE(texts.at("samples/1").size(), std::size_t{64} << 10);
  EXPECT_EQ(texts.at("plan"), "    wte: S(0)\n    wpe: R");
  EXPECT_THAT(texts.at("config"), HasSubstr("    name: a\n"));
}

TEST(JobEvents, HyperparametersAreTheConfigAndTheEndIsTold) {
  const test::TempFolder folder;
  {
    JobEvents events(folder.path(), a_job(), 0);
    events.end(v1::JOB_STATE_FAILED);
  }
  { const JobEvents second(folder.path(), a_job(), 5); }
  std::vector<HParamsData> found;
  for (const Event& event : events_of(folder.path()))
    for (const Summary::Value& value : event.summary().value())
      if (value.metadata().plugin_data().plugin_name() == "hparams")
        ASSERT_TRUE(found.emplace_back().ParseFromString(value.metadata().plugin_data().content()));
  ASSERT_EQ(found.size(), 2u);  // of the first file alone
  const auto& hparams = found[0].session_start().hparams();
  EXPECT_EQ(hparams.at("optimizer.lr").number_value(), 0.5);
  EXPECT_EQ(hparams.at("data.path").string_value(), "text.txt");
  EXPECT_TRUE(hparams.at("training.deterministic").bool_value());
  EXPECT_EQ(found[0].session_start().group_name(), "jobs/a");
  EXPECT_EQ(found[1].session_end().status(), 2);
}

TEST(JobEvents, AStepThatIsNotFiniteIsShown) {
  const test::TempFolder folder;
  JobEvents events(folder.path(), a_job(), 0);
  events.bad_step(4, INFINITY, NAN);
  const auto losses = shown_losses(folder.path());
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0].first, 4);
  EXPECT_EQ(losses[0].second, INFINITY);
}

}  // namespace
}  // namespace meshloom::events
