// SPDX-License-Identifier: Apache-2.0
// FlightLog: what the collectives of a rank were and how far they came, in memory that its peers
// read.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/comm/diagnosis/abort_record.h"
#include "daemon/comm/signature.h"
#include "daemon/comm/work.h"

namespace meshloom::comm {

enum class FlightState : std::uint8_t { kIssued, kStarted, kDone, kFailed };
/// Returns "issued", "started" (something has moved), "done" or "failed".
const char* to_string(FlightState state);

/// FlightEntry is one call of a rank.
struct FlightEntry {
  std::uint32_t group = 0;     ///< FlightGroup::number
  std::uint64_t sequence = 0;  ///< of the group's calls, sends and receives included
  std::int64_t number = -1;    ///< the number that all ranks agree on; -1: a send or a receive
  CollectiveKind kind = CollectiveKind::kNone;
  DType dtype{};
  ReduceOp op{};
  int root = -1;  ///< of the group; the peer of a send or a receive; -1: none
  std::uint64_t bytes = 0;
  std::int64_t elements = -1;  ///< over all ranks; -1: this rank knows its own alone
  FlightState state = FlightState::kIssued;
  Clock::time_point issued, changed;  ///< `changed`: when it came to `state`

  bool open() const { return state == FlightState::kIssued || state == FlightState::kStarted; }
};

/// FlightGroup is a group of a rank.
struct FlightGroup {
  std::uint32_t number = 0;  ///< counts the groups of the rank, from 1
  std::string name;          ///< at most 63 bytes
  std::uint64_t id = 0;      ///< the same on all members, another one in every other group
  int size = 0;
  std::vector<int> members;  ///< ranks of the world; empty where they are too many to be recorded
};

/// A snapshot has what a log holds at one moment, entries oldest first.
struct FlightSnapshot {
  int rank = -1;
  std::int64_t pid = 0;
  std::uint64_t start_time = 0, pid_namespace = 0;  ///< see symm_mem/peer_process.h
  std::vector<FlightGroup> groups;
  std::vector<FlightEntry> entries;

  const FlightGroup* group(std::uint32_t number) const;
};

/// FlightLog is a view of the memory of one rank's log, without pointers. The rank's training
/// thread writes; anyone who maps the memory reads at any time, also when the rank is stopped or
/// dead. Nobody waits for anybody: an entry that is being written is left out of a snapshot.
/// Recording never allocates and costs a few stores to one line.
class FlightLog {
 public:
  static constexpr std::size_t kEntries = 1024;
  static constexpr std::size_t kGroups = 64;
  static constexpr std::size_t kMostMembers = 128;
  static constexpr std::size_t bytes();

  /// Names an entry to who wrote it.
  using Ticket = std::uint64_t;

  FlightLog() = default;
  /// `memory` is zero when it is new, aligned to 64 bytes and outlives this.
  explicit FlightLog(std::byte* memory) : memory_(reinterpret_cast<Memory*>(memory)) {}
  explicit operator bool() const { return memory_ != nullptr; }

  /// The owner says who it is, before anything else; `start_time` and `pid_namespace` are its own.
  void begin(int rank, std::uint64_t start_time, std::uint64_t pid_namespace);
  /// Returns the group's number. The slot of the group that ended longest ago is used again.
  std::uint32_t add_group(const std::string& name, std::uint64_t id, std::span<const int> members);
  void end_group(std::uint32_t number);
  /// State and times come from `now`.
  Ticket issue(const FlightEntry& entry, Clock::time_point now);
  void set_state(Ticket ticket, FlightState state, Clock::time_point now) {
    Entry& entry = memory_->entries[ticket % kEntries];
    if (entry.words[0].load(std::memory_order_relaxed) != stamp(ticket)) return;  // pushed out
    entry.words[2].store(packed(state, now), std::memory_order_release);
  }

  /// Returns what the log holds. Any thread or process may call it. None before begin().
  std::optional<FlightSnapshot> read() const;
  /// The record that the ranks of a world agree on lies in one of their logs.
  AbortBoard& abort_board() const { return memory_->board; }

 private:
  using Word = std::atomic<std::uint64_t>;
  static_assert(Word::is_always_lock_free, "a lock would not be shared between processes");

  /// The words are stamp, issued, state and when, number, sequence, bytes, elements, the rest.
  struct alignas(64) Entry {
    std::array<Word, 8> words;
  };
  static constexpr std::size_t kNameWords = 8;
  static constexpr std::size_t kMemberWords = kMostMembers / 4;
  struct Group {
    Word version;  ///< odd while the rest changes
    Word number;   ///< 0: never used
    Word ended;    ///< counts the ends of groups; 0: it has not ended
    Word id, size;
    std::array<Word, kNameWords> name;
    std::array<Word, kMemberWords> members;  ///< four in each
  };
  struct Memory {
    Word begun;  ///< 1 once the next four are there
    Word rank, pid, start_time, pid_namespace;
    Word next;  ///< entries so far
    Word groups_so_far, ends_so_far;
    AbortBoard board;
    std::array<Group, kGroups> groups;
    std::array<Entry, kEntries> entries;
  };

  static std::uint64_t stamp(Ticket ticket) { return 2 * ticket + 2; }
  static std::uint64_t packed(FlightState state, Clock::time_point when) {
    return static_cast<std::uint64_t>(state) << 60 |
           static_cast<std::uint64_t>(when.time_since_epoch().count());
  }
  static std::optional<FlightGroup> read(const Group& group);
  static std::optional<FlightEntry> read(const Entry& entry, Ticket ticket);

  Memory* memory_ = nullptr;
};

constexpr std::size_t FlightLog::bytes() { return sizeof(Memory); }

}  // namespace meshloom::comm
