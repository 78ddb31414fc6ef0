// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/job_table.h"

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/reason_of.h"

namespace meshloom::control {
namespace {

using test::reason_of;

std::unique_ptr<JobEntry> entry_of(const std::string& id, v1::JobState state,
                                   std::int64_t place = 0) {
  v1::Job job;
  job.set_name("jobs/" + id);
  job.set_state(state);
  job.set_queue_place(place);
  job.mutable_resolved()->mutable_model()->set_name("model of " + id);
  return std::make_unique<JobEntry>(std::move(job), 0);
}

std::vector<std::string> ids_of(const std::vector<JobEntry*>& entries) {
  std::vector<std::string> ids;
  for (const JobEntry* entry : entries) ids.push_back(entry->id());
  return ids;
}

using Ids = std::vector<std::string>;

TEST(JobTable, FindsEntriesUntilTheyAreErased) {
  JobTable table;
  table.submit(entry_of("first", v1::JOB_STATE_QUEUED));
  EXPECT_EQ(table.at("first").id(), "first");
  EXPECT_EQ(table.find("other"), nullptr);
  EXPECT_EQ(reason_of([&] { table.at("other"); }), "JOB_NOT_FOUND");
  try {
    table.at("frst");
    ADD_FAILURE() << "it is there";
  } catch (const NotFound& error) {
    EXPECT_NE(std::string(error.what()).find("first"), std::string::npos) << error.what();
  }
  table.erase("first");
  table.erase("first");
  EXPECT_EQ(table.find("first"), nullptr);
  EXPECT_TRUE(table.all().empty());
  EXPECT_TRUE(table.unfinished().empty());
  EXPECT_EQ(table.first_waiting(), nullptr);
}

TEST(JobTable, JobsWaitInTheOrderOfTheirPlaces) {
  JobTable table;
  table.submit(entry_of("late", v1::JOB_STATE_QUEUED, 31));
  table.submit(entry_of("early", v1::JOB_STATE_RECOVERING, 11));
  table.submit(entry_of("held", v1::JOB_STATE_HELD, 5));
  table.submit(entry_of("paused", v1::JOB_STATE_PAUSED, 3));
  table.submit(entry_of("runs", v1::JOB_STATE_RUNNING, 1));
  table.at("runs").active = true;
  EXPECT_EQ(ids_of(table.queue()), (Ids{"held", "early", "late"}));
  EXPECT_EQ(table.first_waiting()->id(), "early") << "what is held waits for somebody else";
  EXPECT_EQ(table.last_place(), 31);
  table.at("early").job.set_stalled_attempts(1);
  EXPECT_EQ(table.first_waiting()->id(), "late") << "what took the daemon down comes last";
  table.queue_first(table.at("paused"));
  EXPECT_EQ(table.at("paused").job.state(), v1::JOB_STATE_QUEUED);
  EXPECT_TRUE(table.at("paused").resumed);
  EXPECT_EQ(table.first_waiting()->id(), "paused");
}

TEST(JobTable, AReplayIsSortedByWhatHasEnded) {
  JobTable table;
  table.add(entry_of("ended", v1::JOB_STATE_SUCCEEDED, 7));
  table.add(entry_of("waits", v1::JOB_STATE_QUEUED));
  EXPECT_TRUE(table.unfinished().empty());
  table.settle();
  ASSERT_EQ(table.unfinished().size(), 1u);
  EXPECT_EQ(table.unfinished().begin()->second->id(), "waits");
  EXPECT_EQ(table.at("waits").job.queue_place(), 2 * JobTable::kQueueGap + 1)
      << "an older journal has no places";
  const auto is = [](const char* model) {
    return [model](const v1::RunConfig& config) { return config.model().name() == model; };
  };
  EXPECT_EQ(table.find_user(is("model of waits")), "waits");
  EXPECT_EQ(table.find_user(is("model of ended")), std::nullopt);
}

TEST(JobTable, OfEndedJobsTheNewestKeepTheirDetails) {
  JobTable table;
  for (const char* id : {"a", "b", "c"}) {
    table.submit(entry_of(id, v1::JOB_STATE_RUNNING));
    table.at(id).job.set_state(v1::JOB_STATE_SUCCEEDED);
    table.end(table.at(id));
    EXPECT_FALSE(table.at(id).job.finish_time().empty());
  }
  EXPECT_TRUE(table.unfinished().empty());
  table.drop_details(2);
  EXPECT_TRUE(table.at("a").job.summary());
  EXPECT_EQ(table.at("a").config, nullptr);
  EXPECT_FALSE(table.at("b").job.summary());
  table.at("b").hold_back();
  table.at("b").add_event({}, 1);
  table.drop_details(0);
  EXPECT_FALSE(table.at("b").job.summary()) << "what is not told yet is not dropped";
}

}  // namespace
}  // namespace meshloom::control
