// SPDX-License-Identifier: Apache-2.0
// The log of a rank, read while it is written; the record that several ranks write at once.
#include "daemon/comm/diagnosis/flight_log.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "daemon/comm/diagnosis/flight_field.h"

namespace meshloom::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

FlightEntry numbered(std::uint32_t group, std::uint64_t sequence) {
  FlightEntry entry;
  entry.group = group;
  entry.sequence = sequence;
  entry.number = static_cast<std::int64_t>(2 * sequence);
  entry.kind = CollectiveKind::kReduceScatter;
  entry.dtype = DType::kBFloat16;
  entry.op = ReduceOp::kMin;
  entry.root = static_cast<int>(sequence % 7) - 1;
  entry.bytes = 3 * sequence;
  entry.elements = static_cast<std::int64_t>(5 * sequence);
  return entry;
}

void expect_numbered(const FlightEntry& entry, std::uint32_t group) {
  const FlightEntry expected = numbered(group, entry.sequence);
  EXPECT_EQ(entry.group, group);
  EXPECT_EQ(entry.number, expected.number);
  EXPECT_EQ(entry.kind, expected.kind);
  EXPECT_EQ(entry.dtype, expected.dtype);
  EXPECT_EQ(entry.op, expected.op);
  EXPECT_EQ(entry.root, expected.root);
  EXPECT_EQ(entry.bytes, expected.bytes);
  EXPECT_EQ(entry.elements, expected.elements);
}

TEST(FlightLog, HoldsTheLastCallsAndHowFarTheyCame) {
  const auto field = make_private_flight_field(1, 3, "alone");
  FlightLog log = field->own();
  EXPECT_FALSE(field->logs[0].log.read());
  const std::vector<int> members{2, 0, 1};
  const std::uint32_t group = log.add_group("dp", 77, members);
  const auto begin = Clock::now();
  const std::uint64_t calls = FlightLog::kEntries + 100;
  FlightLog::Ticket first = 0, last = 0;
  for (std::uint64_t i = 0; i < calls; ++i) {
    last = log.issue(numbered(group, i), begin + std::chrono::nanoseconds(i));
    if (i == 0) first = last;
  }
  log.set_state(last, FlightState::kDone, begin + std::chrono::seconds(1));
  log.set_state(first, FlightState::kFailed, begin);  // pushed out by later ones
  const auto read = log.read();
  ASSERT_TRUE(read);
  EXPECT_EQ(read->rank, 1);
  EXPECT_EQ(read->pid, getpid());
  ASSERT_EQ(read->entries.size(), FlightLog::kEntries);
  for (std::size_t i = 0; i < read->entries.size(); ++i) {
    EXPECT_EQ(read->entries[i].sequence, calls - FlightLog::kEntries + i);
    expect_numbered(read->entries[i], group);
    EXPECT_NE(read->entries[i].state, FlightState::kFailed);
  }
  EXPECT_EQ(read->entries.back().state, FlightState::kDone);
  EXPECT_EQ(read->entries.back().changed, begin + std::chrono::seconds(1));
  const FlightGroup* one = read->group(group);
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(one->name, "dp");
  EXPECT_EQ(one->id, 77u);
  EXPECT_EQ(one->members, members);
}

TEST(FlightLog, TheSlotsOfGroupsThatEndedAreUsedAgain) {
  const auto field = make_private_flight_field(0, 1, "");
  FlightLog log = field->own();
  const std::uint32_t kept = log.add_group("kept", 1, std::vector<int>{0});
  std::uint32_t last = 0;
  for (std::uint64_t i = 0; i < 10 * FlightLog::kGroups; ++i) {
    last = log.add_group(std::string(100, 'x'), i, std::vector<int>{0});
    log.end_group(last);
  }
  const auto read = log.read();
  ASSERT_TRUE(read);
  EXPECT_EQ(read->groups.size(), FlightLog::kGroups);
  ASSERT_NE(read->group(kept), nullptr);
  ASSERT_NE(read->group(last), nullptr);
  EXPECT_EQ(read->group(last)->name, std::string(63, 'x'));
}

TEST(FlightLog, ASnapshotNeverHoldsHalfAnEntry) {
  const auto field = make_private_flight_field(0, 1, "");
  FlightLog log = field->own();
  const std::uint32_t group = log.add_group("g", 1, std::vector<int>{0});
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; !stop; ++i) {
      const auto ticket = log.issue(numbered(group, i), Clock::now());
      log.set_state(ticket, FlightState::kDone, Clock::now());
    }
  });
  std::size_t seen = 0;
  for (int round = 0; round < 200 || seen == 0; ++round) {
    const auto read = log.read();
    ASSERT_TRUE(read);
    for (const FlightEntry& entry : read->entries) expect_numbered(entry, group);
    seen += read->entries.size();
  }
  stop = true;
  writer.join();
  EXPECT_GT(seen, 0u);
}

TEST(AbortBoard, OtherRanksLeaveAfterTheWriterHasTold) {
  const auto field = make_private_flight_field(0, 1, "");
  AbortBoard& board = field->abort_board();
  for (const std::uint64_t epoch : {0u, 3u}) {
    ASSERT_TRUE(board.claim(epoch, AbortRecord{}));
    std::atomic<bool> told{false};
    std::thread writer([&] {
      std::this_thread::sleep_for(50ms);
      told = true;
      board.tell(epoch);
    });
    EXPECT_FALSE(board.claim(epoch, AbortRecord{}));
    board.wait_until_told(epoch, 10s);
    EXPECT_TRUE(told);
    writer.join();
  }
  // The writer died in the middle.
  ASSERT_TRUE(board.claim(4, AbortRecord{}));
  const auto begin = Clock::now();
  board.wait_until_told(4, 30ms);
  EXPECT_GE(Clock::now() - begin, 30ms);
  EXPECT_LT(Clock::now() - begin, 5s);
}

TEST(AbortBoard, OneOfManyStandsAndAllReadIt) {
  const auto field = make_private_flight_field(0, 1, "");
  AbortBoard& board = field->abort_board();
  for (const std::uint64_t epoch : {0u, 1u, 5u}) {  // not every epoch has one
    EXPECT_FALSE(board.written(epoch));
    std::atomic<int> won{0}, winner{-1};
    std::vector<AbortRecord> read(4);
    std::vector<std::thread> ranks;
    for (int r = 0; r < 4; ++r)
      ranks.emplace_back([&, r] {
        AbortRecord mine;
        mine.rank = r;
        mine.kind = ErrorKind::kComm;
        mine.reason = "SYMM_MEM_PEER_GONE";
        mine.group = "a group with blanks";
        mine.group_id = 1000 + epoch;
        mine.sequence = 9;
        mine.missing = fmt::format("rank {}", r + 1);
        mine.root_cause = "";
        mine.text = std::string(10'000, static_cast<char>('a' + r));
        if (board.claim(epoch, mine)) {
          ++won;
          winner = r;
        }
        read[static_cast<std::size_t>(r)] = board.read(epoch).value();
      });
    for (std::thread& one : ranks) one.join();
    EXPECT_EQ(won, 1);
    for (const AbortRecord& one : read) {
      EXPECT_EQ(one.rank, winner);
      EXPECT_EQ(one.kind, ErrorKind::kComm);
      EXPECT_EQ(one.reason, "SYMM_MEM_PEER_GONE");
      EXPECT_EQ(one.group, "a group with blanks");
      EXPECT_EQ(one.group_id, 1000 + epoch);
      EXPECT_EQ(one.missing, fmt::format("rank {}", winner + 1));
      EXPECT_EQ(one.text, std::string(one.text.size(), static_cast<char>('a' + winner)));
      EXPECT_GT(one.text.size(), 1000u);
    }
  }
}

}  // namespace
}  // namespace meshloom::comm
