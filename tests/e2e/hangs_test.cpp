// SPDX-License-Identifier: Apache-2.0
// Ranks that hang or die in a collective: what the dump shows while they do, and what is told of it
// afterwards.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <set>
#include <thread>

#include "tests/e2e/daemon_fixture.h"

namespace meshloom::e2e {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class HangsE2e : public DaemonTest {
 protected:
  static TinyJob endless() {
    TinyJob job;
    job.steps = 10'000'000;
    return job;
  }
  Json dump(int entries = 1024) const {
    return client_json({"worker", "dump", "--entries", std::to_string(entries)});
  }
  std::string flight_file(int rank) const {
    return read_file(state_ / fmt::format("logs/flight-rank-{}.txt", rank));
  }
  static std::set<std::string> files_in_shared_memory() {
    std::set<std::string> files;
    for (const auto& file : std::filesystem::directory_iterator("/dev/shm"))
      files.insert(file.path());
    return files;
  }
};

TEST_F(HangsE2e, DumpsOfATrainingJobShowAllRanksAndChangeNothing) {
  start();
  TinyJob short_job;
  short_job.steps = 2000;
  submit(short_job, "whole");
  ASSERT_TRUE(reaches("whole", "succeeded", 120s));
  submit(short_job, "watched");
  ASSERT_TRUE(reaches_step("watched", 5));
  int dumps = 0;
  std::set<std::int64_t> numbers;
  const auto ended = [&] {
    const std::string state = job("watched")["state"];
    return state == "succeeded" || state == "failed";
  };
  while (!ended()) {
    const Json shown = dump();
    ++dumps;
    ASSERT_EQ(shown["ranks"].size(), 2u) << shown.dump(2);
    for (const Json& rank : shown["ranks"]) {
      EXPECT_EQ(rank["process"], "running");
      EXPECT_FALSE(rank.contains("unreadable") && rank["unreadable"] != "") << rank.dump(2);
      ASSERT_FALSE(rank["entries"].empty());
      const Json& last = rank["entries"].back();
      EXPECT_NE(last["kind"], "");
      EXPECT_NE(last["group"], "");
      numbers.insert(last["sequence"].get<std::int64_t>());
    }
    EXPECT_EQ(shown.value("abortRecord", shown.value("abort_record", "")), "");
  }
  EXPECT_GT(dumps, 2) << "the job was over too soon";
  EXPECT_GT(numbers.size(), 1u) << "the record stood still";
  ASSERT_TRUE(reaches("watched", "succeeded", 120s));
  EXPECT_EQ(step_losses("whole").size(), 2000u);
  EXPECT_EQ(step_losses("whole"), step_losses("watched"));
  EXPECT_EQ(client({"worker", "dump", "--entries", "-1"}).exit_code, 2);
  shut_down();
}

TEST_F(HangsE2e, ADumpNamesAStoppedRankWhileTheOthersWait) {
  start();
  submit(endless(), "job");
  ASSERT_TRUE(reaches_step("job", 5));
  ::kill(pids_[1], SIGSTOP);
  Json shown;
  EXPECT_TRUE(eventually(5s, [&] {
    shown = dump(4);
    return shown.contains("open") && !shown["open"].empty() &&
           shown["open"][0].value("rootCause", shown["open"][0].value("root_cause", "")) != "";
  })) << shown.dump(2);
  const std::string text = client({"worker", "dump"}).output;
  EXPECT_THAT(text, HasSubstr("root cause: rank 1 "));
  EXPECT_THAT(text, HasSubstr(fmt::format("its process {} is stopped (SIGSTOP", pids_[1])));
  EXPECT_THAT(text, HasSubstr("its last call: "));
  EXPECT_EQ(shown["open"][0]["roots"], Json({1})) << shown.dump(2);
  ::kill(pids_[1], SIGCONT);
  const int step = job("job")["step"];
  EXPECT_TRUE(reaches_step("job", step + 20)) << daemon_log();
}

TEST_F(HangsE2e, AStoppedRankEndsTheWaitsOfTheOthersByName) {
  const auto before = files_in_shared_memory();
  // The watch over the ranks gives up later than a collective.
  start_with("collective_timeout_ms: 1500\nrank_timeout_ms: 20000\n", 3);
  submit(endless(), "job");
  ASSERT_TRUE(reaches_step("job", 5));
  const auto stopped = Clock::now();
  ::kill(pids_[1], SIGSTOP);
  const auto told = [&] { return flight_file(0) + flight_file(2); };
  EXPECT_TRUE(eventually(10s, [&] { return told().find("rank 2: process") != std::string::npos; }))
      << daemon_log();
  EXPECT_LT(Clock::now() - stopped, 4s);
  EXPECT_THAT(told(), HasSubstr(fmt::format("its process {} is stopped (SIGSTOP", pids_[1])));
  EXPECT_THAT(told(), HasSubstr("root cause: rank 1 "));
  // The log says where the file is once that is written.
  EXPECT_TRUE(
      eventually(5s,
                 [&] {
                   return (log_of(0) + log_of(2)).find("the collectives of all ranks are in") !=
                          std::string::npos;
                 }))
      << log_of(0) << log_of(2);
  ::kill(pids_[1], SIGCONT);
  EXPECT_NE(wait_for_end(40s), 0);
  EXPECT_EQ(files_in_shared_memory(), before);
}

TEST_F(HangsE2e, ASurvivorHasTimeToTellWhoWasKilled) {
  const auto before = files_in_shared_memory();
  ::setenv("OMPI_MCA_odls_base_sigkill_timeout", "8", 1);
  start();
  ::unsetenv("OMPI_MCA_odls_base_sigkill_timeout");
  submit(endless(), "job");
  ASSERT_TRUE(reaches_step("job", 5));
  const pid_t killed = pids_[1];
  ::kill(killed, SIGKILL);
  EXPECT_NE(wait_for_end(40s), 0);
  // Whichever is first, the end of the connection or a look at the process.
  EXPECT_THAT(flight_file(0), HasSubstr("rank 1 "));
  EXPECT_THAT(flight_file(0), HasSubstr(fmt::format("rank 1: process {} is ", killed)));
  EXPECT_THAT(flight_file(0), HasSubstr(fmt::format("(pid {}", killed)));
  EXPECT_THAT(flight_file(0), HasSubstr("all_reduce #"));
  EXPECT_THAT(daemon_log(), HasSubstr("the collectives of all ranks are in"));
  EXPECT_EQ(files_in_shared_memory(), before);
}

}  // namespace
}  // namespace meshloom::e2e
