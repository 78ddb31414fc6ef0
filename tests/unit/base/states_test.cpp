// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/states.h"
#include "tests/support/source_folder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

namespace meshloom::base {
namespace {

TEST(States, EveryStateIsReachedAndFinalStatesAreThoseOfTheWire) {
  std::map<std::string, std::set<std::string>> finals;
  for (const StateTable* table : state_tables()) {
    std::set<int> reached{table->moves.front().from};
    for (bool more = true; more;) {
      more = false;
      for (const StateMove& move : table->moves)
        if (reached.count(move.from) > 0) more = reached.insert(move.to).second || more;
    }
    for (int i = 0; i < table->states->value_count(); ++i) {
      const int state = table->states->value(i)->number();
      if (state == 0) continue;
      EXPECT_EQ(reached.count(state), 1u) << table->resource << " " << table->name(state);
      if (!table->leaves(state)) finals[table->resource].insert(table->name(state));
    }
    std::set<std::pair<int, int>> once;
    for (const StateMove& move : table->moves)
      EXPECT_TRUE(once.emplace(move.from, move.to).second && move.from != move.to)
          << table->resource << ": " << table->name(move.from) << " to " << table->name(move.to);
  }
  EXPECT_EQ(finals["job"], (std::set<std::string>{"succeeded", "failed", "cancelled"}));
  EXPECT_EQ(finals["run"], (std::set<std::string>{"closed", "failed"}));
  EXPECT_EQ(finals["operation"], (std::set<std::string>{"succeeded", "failed", "cancelled"}));
}

TEST(States, AnIllegalMoveIsAnErrorAndChangesNothing) {
  v1::Job job;
  job.set_name("jobs/a");
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  move_to(job, v1::JOB_STATE_SUCCEEDED);
  try {
    move_to(job, v1::JOB_STATE_RUNNING);
    FAIL() << "a job that has ended runs";
  } catch (const InternalError& error) {
    EXPECT_EQ(error.reason(), "ILLEGAL_MOVE");
    EXPECT_STREQ(error.what(), "job jobs/a cannot move from SUCCEEDED to RUNNING");
  }
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  v1::Operation operation;
  operation.set_state(v1::OPERATION_STATE_RUNNING);
  EXPECT_THROW(move_to(operation, v1::OPERATION_STATE_WAITING), InternalError);
  move_to(operation, v1::OPERATION_STATE_FAILED);
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_FAILED);
}

TEST(States, WhatTheTableDoesNotKnowIsNotFinal) {
  EXPECT_TRUE(is_final(v1::JOB_STATE_FAILED));
  EXPECT_TRUE(is_final(v1::RUN_STATE_CLOSED));
  EXPECT_TRUE(is_final(v1::OPERATION_STATE_CANCELLED));
  EXPECT_FALSE(is_final(v1::OPERATION_STATE_RUNNING));
  EXPECT_FALSE(is_final(v1::JOB_STATE_UNSPECIFIED));
  EXPECT_FALSE(is_final(v1::RUN_STATE_UNSPECIFIED));
  EXPECT_FALSE(is_final(v1::OPERATION_STATE_UNSPECIFIED));
  EXPECT_FALSE(is_final(static_cast<v1::JobState>(1000)));
}

TEST(States, TheReadmeHasTheTablesOfTheCode) {
  std::ifstream file(test::source_file("proto/v1/README.md"));
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(states_markdown(3)), std::string::npos)
      << "proto/v1/README.md must have, as `meshloom states` prints it:\n"
      << states_markdown(3);
}

}  // namespace
}  // namespace meshloom::base
