// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/jobs/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/cli/client.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/output/records.h"

namespace meshloom::cli {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

v1::JobEvent state(v1::JobState state, std::int64_t step = 0) {
  v1::JobEvent event;
  event.mutable_job()->set_name("jobs/a");
  event.mutable_job()->set_state(state);
  event.mutable_job()->set_step(step);
  event.mutable_job()->set_steps(100);
  return event;
}

v1::JobEvent step(std::int64_t number) {
  v1::JobEvent event;
  event.mutable_step()->set_step(number);
  event.mutable_step()->set_loss(2.5);
  event.mutable_step()->set_tokens_per_second(1234);
  return event;
}

v1::JobEvent validation(std::int64_t number) {
  v1::JobEvent event;
  event.mutable_validation()->set_step(number);
  event.mutable_validation()->set_loss(3.25);
  return event;
}

v1::JobEvent tokenizing(std::int64_t bytes) {
  v1::JobEvent event;
  event.mutable_tokenizing()->set_field("run.data.path");
  event.mutable_tokenizing()->set_bytes(bytes);
  event.mutable_tokenizing()->set_total_bytes(1000);
  return event;
}

TEST(Progress, AValidationNamesEachSet) {
  Progress progress(false, 80);
  v1::JobEvent event = validation(4);
  for (const char* name : {"books", "code"}) {
    v1::SetLoss& set = *event.mutable_validation()->add_sets();
    set.set_set(name);
    set.set_loss(2.0);
  }
  EXPECT_EQ(progress.show(event, {}),
            "step 4: validation loss 3.2500, perplexity 25.79; books 2.0000, perplexity 7.39; code "
            "2.0000, perplexity 7.39\n");
}

TEST(Progress, ASampleIsShownWithoutWhatTerminalsObey) {
  Progress progress(false, 80);
  v1::JobEvent event;
  event.mutable_sample()->set_step(20);
  event.mutable_sample()->set_text("once \033[2J upon");
  EXPECT_EQ(progress.show(event, {}), "step 20: sample: once \\x1b[2J upon\n");
}

TEST(Progress, TokenizingIsALineNowAndThenAndABarOnATerminal) {
  Progress plain(false, 80);
  const Progress::Clock::time_point now{std::chrono::hours(1)};
  EXPECT_EQ(plain.show(tokenizing(250), now), "tokenizing run.data.path: 250 B of 1000 B (25 %)\n");
  EXPECT_EQ(plain.show(tokenizing(500), now + milliseconds(10)), "");
  EXPECT_THAT(plain.show(tokenizing(1000), now + milliseconds(20)), HasSubstr("(100 %)\n"));
  EXPECT_EQ(plain.show(tokenizing(1000), now + milliseconds(25)), "") << "the end, once more";
  EXPECT_THAT(plain.show(step(1), now + milliseconds(30)), HasSubstr("step 1/"));

  Progress terminal(true, 20);
  const std::string bar = terminal.show(tokenizing(250), now);
  EXPECT_EQ(bar, "\r\033[Ktokenizing run.data");
  EXPECT_EQ(terminal.clear(), "\r\033[K");
}

TEST(Progress, PlainLinesComeAtMostOnceASecondAndAtTheEnd) {
  Progress progress(false, 80);
  Progress::Clock::time_point now{std::chrono::hours(1)};
  EXPECT_EQ(progress.show(state(v1::JOB_STATE_RUNNING), now), "a: running\n");
  EXPECT_EQ(progress.show(state(v1::JOB_STATE_RUNNING), now), "");
  EXPECT_THAT(progress.show(step(1), now + milliseconds(10)), HasSubstr("step 1/100  loss 2.5000"));
  EXPECT_EQ(progress.show(step(2), now + milliseconds(20)), "");
  EXPECT_EQ(progress.show(validation(2), now + milliseconds(30)),
            "step 2: validation loss 3.2500, perplexity 25.79\n");
  EXPECT_THAT(progress.show(step(50), now + milliseconds(5000)), HasSubstr("left 5s"));
  EXPECT_THAT(progress.show(step(100), now + milliseconds(5001)), HasSubstr("step 100/100"));
  EXPECT_EQ(progress.clear(), "");
}

TEST(Progress, OnATerminalTheBarStaysBelow) {
  Progress progress(true, 80);
  const Progress::Clock::time_point now{std::chrono::hours(1)};
  progress.show(state(v1::JOB_STATE_RUNNING), now);
  const std::string bar = progress.show(step(50), now + milliseconds(1000));
  EXPECT_THAT(bar, HasSubstr("50/100  loss 2.5000  1234 tokens/s  left 1s"));
  EXPECT_THAT(bar, HasSubstr("####"));
  EXPECT_EQ(bar.find('\n'), std::string::npos);
  EXPECT_EQ(progress.show(validation(50), now),
            "\r\033[Kstep 50: validation loss 3.2500, perplexity 25.79\n" + bar.substr(4));
  EXPECT_EQ(progress.clear(), "\r\033[K");
  Progress narrow(true, 20);
  narrow.show(state(v1::JOB_STATE_RUNNING), now);
  EXPECT_LE(narrow.show(step(50), now).size() - 4, 19u);
}

TEST(Progress, ValidationsAreNotInWhatIsLeft) {
  Progress progress(false, 80);
  Progress::Clock::time_point now{std::chrono::hours(1)};
  progress.show(state(v1::JOB_STATE_RUNNING), now);
  progress.show(step(49), now += milliseconds(4'900));
  progress.show(validation(49), now += milliseconds(60'000));
  EXPECT_THAT(progress.show(step(50), now += milliseconds(100)), HasSubstr("left 5s"));
}

TEST(Progress, ANarrowerTerminalLosesTheLinesThatTheBarLiesOn) {
  Progress progress(true, 80);
  const Progress::Clock::time_point now{std::chrono::hours(1)};
  progress.show(state(v1::JOB_STATE_RUNNING), now);
  const std::string bar = progress.show(step(50), now + milliseconds(1000));
  const std::size_t drawn = bar.size() - 4;
  ASSERT_GT(drawn, 60u);
  progress.resize(30);
  const std::string next = progress.show(step(51), now + milliseconds(1020));
  EXPECT_EQ(next.rfind("\r\033[2A\033[J", 0), 0u) << "it lies on three lines";
  EXPECT_LT(next.size() - std::string("\r\033[2A\033[J").size(), 30u);
  EXPECT_EQ(progress.show(step(52), now + milliseconds(1040)).rfind("\r\033[K", 0), 0u);
}

TEST(Progress, AResumedJobCountsFromItsCheckpoint) {
  Progress progress(false, 80);
  const Progress::Clock::time_point now{std::chrono::hours(1)};
  progress.show(state(v1::JOB_STATE_RUNNING, 80), now);
  EXPECT_THAT(progress.show(step(90), now + milliseconds(10'000)), HasSubstr("left 10s"));
}

TEST(Output, NumbersForPeople) {
  EXPECT_EQ(duration_text(59.4), "59s");
  EXPECT_EQ(duration_text(59.6), "1m00s");
  EXPECT_EQ(duration_text(3725), "1h02m");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(state_name(v1::JOB_STATE_RECOVERING), "recovering");
  EXPECT_EQ(short_name("jobs/a"), "a");
}

TEST(Client, RequestIdsAreUuidsAndDiffer) {
  const auto id = make_request_id();
  EXPECT_EQ(id.size(), 36u);
  EXPECT_EQ(id[14], '4');
  EXPECT_TRUE(id[19] == '8' || id[19] == '9' || id[19] == 'a' || id[19] == 'b') << id;
  EXPECT_NE(id, make_request_id());
}

TEST(EventRecord, SaysWhatItIsAndWhen) {
  v1::JobEvent note;
  note.set_note("careful");
  v1::JobEvent tokenizing;
  tokenizing.mutable_tokenizing();
  const std::pair<v1::JobEvent, const char*> events[] = {{state(v1::JOB_STATE_RUNNING), "job"},
                                                         {step(3), "step"},
                                                         {validation(3), "validation"},
                                                         {tokenizing, "tokenizing"},
                                                         {note, "note"}};
  for (const auto& [event, type] : events) {
    const auto line = event_record(event);
    EXPECT_EQ(line["type"], type);
    EXPECT_TRUE(line.contains(type));
    EXPECT_THAT(line["time"].get<std::string>(),
                ::testing::MatchesRegex("20..-..-..T..:..:...[0-9]{3}Z"));
  }
}

}  // namespace
}  // namespace meshloom::cli
