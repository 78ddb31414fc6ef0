// SPDX-License-Identifier: Apache-2.0
// What is made of the logs of several ranks.
#include "daemon/comm/diagnosis/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace meshloom::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kWorld = 1, kFirst = 2, kSecond = 3;

/// Logs of ranks that are all this process, with a group of all and two of pairs.
class Diagnosis : public ::testing::Test {
 protected:
  void make(int ranks) {
    memory_.assign(FlightLog::bytes() * static_cast<std::size_t>(ranks) + 64, std::byte{0});
    auto* begin = reinterpret_cast<std::byte*>(
        (reinterpret_cast<std::uintptr_t>(memory_.data()) + 63) / 64 * 64);
    std::vector<int> all;
    for (int r = 0; r < ranks; ++r) all.push_back(r);
    for (int r = 0; r < ranks; ++r) {
      FlightLog log(begin + FlightLog::bytes() * static_cast<std::size_t>(r));
      log.begin(r, own_start_time(), own_pid_namespace());
      log.add_group("world", kWorld, all);
      log.add_group("first", kFirst, std::vector<int>{0, 1});
      log.add_group("second", kSecond, std::vector<int>{1, 2});
      field_.logs.push_back({log, {}, {}});
    }
  }
  FlightLog::Ticket issue(int rank, std::uint32_t group, std::int64_t number, CollectiveKind kind,
                          DType dtype = DType::kFloat32) {
    FlightEntry entry;
    entry.group = group;
    entry.number = number;
    entry.sequence = static_cast<std::uint64_t>(number);
    entry.kind = kind;
    entry.dtype = dtype;
    return field_.logs[static_cast<std::size_t>(rank)].log.issue(entry, Clock::now());
  }
  void end(int rank, FlightLog::Ticket ticket, FlightState state = FlightState::kDone) {
    field_.logs[static_cast<std::size_t>(rank)].log.set_state(ticket, state, Clock::now());
  }

  std::vector<std::byte> memory_;
  FlightField field_;
};

constexpr std::uint32_t kOfAll = 1, kOfFirst = 2, kOfSecond = 3;  // numbers of the groups

TEST_F(Diagnosis, NothingIsOpenWhereAllIsDone) {
  make(3);
  for (int r = 0; r < 3; ++r) end(r, issue(r, kOfAll, 0, CollectiveKind::kBarrier));
  const FlightReport report = read_flight_report(field_);
  EXPECT_THAT(report.open, IsEmpty());
  EXPECT_THAT(to_text(report, 5), HasSubstr("no collective is open"));
  EXPECT_THAT(to_text(report, 5), HasSubstr("barrier #0 of group 'world'"));
}

TEST_F(Diagnosis, WhoNeverCameIsNamedWithItsLastCall) {
  make(4);
  for (int r = 0; r < 4; ++r) end(r, issue(r, kOfAll, 0, CollectiveKind::kBarrier));
  end(0, issue(0, kOfAll, 1, CollectiveKind::kAllReduce), FlightState::kStarted);
  issue(1, kOfAll, 1, CollectiveKind::kAllReduce);
  end(3, issue(3, kOfAll, 1, CollectiveKind::kAllReduce));
  const FlightReport report = read_flight_report(field_);
  ASSERT_EQ(report.open.size(), 1u);
  const OpenCollective& open = report.open[0];
  EXPECT_THAT(open.waiting, ElementsAre(0, 1));
  EXPECT_THAT(open.missing, ElementsAre(2));
  EXPECT_THAT(open.done, ElementsAre(3));
  EXPECT_THAT(open.roots, ElementsAre(2));
  EXPECT_THAT(open.root_cause, HasSubstr("rank 2 has not come to all_reduce #1 of group 'world'"));
  EXPECT_THAT(open.root_cause, HasSubstr("is running; its last call: barrier #0"));
  EXPECT_EQ(find_open(report, kWorld, 1, 0), &open);
  EXPECT_EQ(find_open(report, kWorld, 1, 2), nullptr);
}

TEST_F(Diagnosis, WhoDiffersIsNamedWithWhatItIsIn) {
  make(3);
  issue(0, kOfAll, 0, CollectiveKind::kAllReduce);
  issue(1, kOfAll, 0, CollectiveKind::kAllReduce);
  issue(2, kOfAll, 0, CollectiveKind::kAllReduce, DType::kFloat64);
  const FlightReport report = read_flight_report(field_);
  ASSERT_EQ(report.open.size(), 1u);
  EXPECT_THAT(report.open[0].differing, ElementsAre(2));
  ASSERT_EQ(report.open[0].differences.size(), 1u);
  EXPECT_THAT(report.open[0].differences[0], HasSubstr("rank 2 is in all_reduce #0"));
  EXPECT_THAT(report.open[0].differences[0], HasSubstr("float64"));
  EXPECT_THAT(report.open[0].roots, ElementsAre(2));
}

TEST_F(Diagnosis, TheRootCauseIsWhoWaitsForNobody) {
  make(3);
  issue(0, kOfFirst, 0, CollectiveKind::kAllReduce);  // waits for rank 1
  issue(1, kOfSecond, 0, CollectiveKind::kBarrier);   // waits for rank 2
  const FlightReport report = read_flight_report(field_);
  const OpenCollective* open = find_open(report, kFirst, 0, 0);
  ASSERT_NE(open, nullptr);
  EXPECT_THAT(open->missing, ElementsAre(1));
  EXPECT_THAT(open->roots, ElementsAre(2));
  EXPECT_THAT(open->root_cause, HasSubstr("since it waits in barrier #0 of group 'second'"));
  EXPECT_THAT(open->root_cause, HasSubstr("rank 2 has not come to barrier #0 of group 'second'"));
}

TEST_F(Diagnosis, WhoIsOnItsWayIsNoCause) {
  make(3);
  // Rank 0 has not seen yet that the first is done; rank 1 is in the second, rank 2 nowhere.
  issue(0, kOfAll, 0, CollectiveKind::kBarrier);
  for (const int r : {1, 2}) end(r, issue(r, kOfAll, 0, CollectiveKind::kBarrier));
  issue(1, kOfAll, 1, CollectiveKind::kBarrier);
  const FlightReport report = read_flight_report(field_);
  const OpenCollective* open = find_open(report, kWorld, 1, 1);
  ASSERT_NE(open, nullptr);
  EXPECT_THAT(open->missing, ElementsAre(0, 2));
  EXPECT_THAT(open->roots, ElementsAre(2));
  EXPECT_THAT(open->root_cause, HasSubstr("rank 2 has not come"));
}

TEST_F(Diagnosis, RanksThatWaitForEachOtherAreSaidToDoSo) {
  make(3);
  issue(0, kOfFirst, 0, CollectiveKind::kAllReduce);
  issue(1, kOfAll, 0, CollectiveKind::kBarrier);
  issue(2, kOfAll, 0, CollectiveKind::kBarrier);
  const FlightReport report = read_flight_report(field_);
  for (const OpenCollective& open : report.open)
    EXPECT_THAT(open.root_cause, HasSubstr("ranks wait for each other"));
}

TEST_F(Diagnosis, AMessageWaitsForItsPeer) {
  make(3);
  FlightEntry message;
  message.group = kOfSecond;
  message.kind = CollectiveKind::kRecv;
  message.root = 1;  // rank 2 of the world
  field_.logs[1].log.issue(message, Clock::now());
  FlightReport report = read_flight_report(field_);
  ASSERT_EQ(report.open.size(), 1u);
  EXPECT_THAT(report.open[0].roots, ElementsAre(2));
  message.kind = CollectiveKind::kSend;
  message.root = 0;
  field_.logs[2].log.issue(message, Clock::now());
  report = read_flight_report(field_);
  for (const OpenCollective& open : report.open) EXPECT_THAT(open.roots, IsEmpty());
}

TEST_F(Diagnosis, ARankThatCannotBeReadIsNotCalledMissing) {
  make(2);
  field_.logs[1] = {FlightLog(), "it is on another host", {}};
  issue(0, kOfFirst, 0, CollectiveKind::kBarrier);
  const FlightReport report = read_flight_report(field_);
  ASSERT_EQ(report.open.size(), 1u);
  EXPECT_THAT(report.open[0].missing, IsEmpty());
  EXPECT_THAT(report.open[0].unknown, ElementsAre(1));
  EXPECT_THAT(report.open[0].root_cause, HasSubstr("it is on another host"));
}

TEST_F(Diagnosis, WhatAKilledRankDidLastIsStillRead) {
  make(2);
  void* shared =
      mmap(nullptr, FlightLog::bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  FlightLog log(static_cast<std::byte*>(shared));
  field_.logs[1] = {log, {}, {}};
  const pid_t child = fork();
  if (child == 0) {
    log.begin(1, own_start_time(), own_pid_namespace());
    log.add_group("world", kWorld, std::vector<int>{0, 1});
    FlightEntry entry;
    entry.group = 1;
    entry.number = 0;
    entry.kind = CollectiveKind::kBarrier;
    log.issue(entry, Clock::now());
    ::kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  issue(0, kOfAll, 0, CollectiveKind::kBarrier);
  const FlightReport report = read_flight_report(field_);
  const OpenCollective* open = find_open(report, kWorld, 0, 0);
  ASSERT_NE(open, nullptr);
  EXPECT_THAT(open->stopped, ElementsAre(1));
  EXPECT_THAT(open->root_cause,
              HasSubstr(fmt::format(
                  "rank 1 is in barrier #0 of group 'world': its process {} is gone", child)));
  munmap(shared, FlightLog::bytes());
}

}  // namespace
}  // namespace meshloom::comm
