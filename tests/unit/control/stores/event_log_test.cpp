// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/full_disk.h"
#include "tests/unit/control/stores/job_store_fixture.h"

namespace meshloom::control {
namespace {

using ::testing::ElementsAre;

class EventLogTest : public JobStoreTest {
 protected:
  std::unique_ptr<OpenJobStore> open_with(EventLog& log) const {
    JobStore::Options with_log = options();
    with_log.events = &log;
    return std::make_unique<OpenJobStore>(journal(), with_log);
  }
  std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> all;
    std::ifstream file(folder_ / "events.jsonl");
    for (std::string line; std::getline(file, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }
  /// "a: queued", "b: note ..."
  std::vector<std::string> told() const {
    std::vector<std::string> all;
    for (const auto& line : lines()) {
      const std::string kind = line["event"];
      const std::string what = kind == "state"  ? line["state"].get<std::string>()
                               : kind == "note" ? "note " + line["note"].get<std::string>()
                                                : "watch " + line["condition"].get<std::string>();
      all.push_back(line["job"].get<std::string>() + ": " + what);
    }
    return all;
  }
};

TEST_F(EventLogTest, StatesOfAllJobsAreThereInTheirOrderBeforeTheyAreTold) {
  EventLog log(folder_ / "events.jsonl");
  const auto store = open_with(log);
  submit(*store, "a");
  EXPECT_THAT(told(), ElementsAre("a: queued"));
  submit(*store, "b");
  run_through(*store, "a");
  store->cancel("b", {});
  EXPECT_THAT(told(), ElementsAre("a: queued", "b: queued", "a: preparing", "a: running",
                                  "a: succeeded", "b: cancelled"));
  const auto last = lines().back();
  EXPECT_EQ(last["before"], "queued");
  EXPECT_EQ(last["attempt"], 0);
  EXPECT_FALSE(last.contains("reason"));
}

TEST_F(EventLogTest, NotesConditionsAndReasonsAreThere) {
  EventLog log(folder_ / "events.jsonl");
  const auto store = open_with(log);
  submit(*store, "a");
  store->begin_attempt("a");
  move(*store, "a", v1::JOB_STATE_RUNNING);
  store->add_note("a", "of \"two\"\nlines");
  v1::WatchNotice notice;
  notice.set_step(7);
  notice.set_condition("loss above 5");
  notice.set_value(6.5);
  store->publish_watch("a", notice, "loss above 5 at step 7: 6.5");
  store->update("a", [](v1::Job* job) {
    job->set_state(v1::JOB_STATE_FAILED);
    job->mutable_error()->set_message("no more");
  });
  EXPECT_THAT(told(), ElementsAre("a: queued", "a: preparing", "a: running",
                                  "a: note of \"two\"\nlines", "a: watch loss above 5",
                                  "a: note loss above 5 at step 7: 6.5", "a: failed"));
  EXPECT_EQ(lines()[4]["step"], 7);
  EXPECT_EQ(lines()[4]["value"], 6.5);
  EXPECT_EQ(lines()[4]["cancel"], false);
  EXPECT_EQ(lines().back()["reason"], "no more");
  // Watchers get the condition with its note.
  bool found = false;
  for (const v1::JobEvent& event : store->events_after("a", 1))
    found = found || (event.has_watch() && event.note() == "loss above 5 at step 7: 6.5");
  EXPECT_TRUE(found);
}

TEST_F(EventLogTest, ARestartTellsOfRecoveriesAndHolds) {
  {
    EventLog log(folder_ / "events.jsonl");
    const auto store = open_with(log);
    submit(*store, "a");
    submit(*store, "b");
    store->begin_attempt("a");
    move(*store, "a", v1::JOB_STATE_RUNNING);
    store->close();
  }
  EventLog log(folder_ / "events.jsonl");
  const auto store = open_with(log);
  EXPECT_THAT(told(),
              ElementsAre("a: queued", "b: queued", "a: preparing", "a: running", "a: recovering"));
}

TEST_F(EventLogTest, AFullDiskCostsLinesAndNoJob) {
  EventLog log(folder_ / "events.jsonl");
  log.append("{}\n");
  {
    const test::FileSizeLimit full(5);
    log.append("{\"lost\": true}\n");
  }
  log.append("{\"kept\": true}\n");
  ASSERT_EQ(lines().size(), 2u);
  EXPECT_TRUE(lines()[1]["kept"]);
}

TEST_F(EventLogTest, WhoReadsItIsWoken) {
  struct Reader final : Wakeable {
    void wake() override { ++woken; }
    int woken = 0;
  };
  EventLog log(folder_ / "events.jsonl");
  const auto reader = std::make_shared<Reader>();
  const Subscription subscription = log.subscribe(reader);
  log.append("");
  EXPECT_EQ(reader->woken, 0);
  log.append("{}\n");
  EXPECT_EQ(reader->woken, 1);
  log.close();
  EXPECT_EQ(reader->woken, 2);
  EXPECT_TRUE(log.closed());
}

}  // namespace
}  // namespace meshloom::control
