// SPDX-License-Identifier: Apache-2.0
// FlightRecorder: what a group's last collectives were and how far they came.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "daemon/comm/work.h"

namespace meshloom::comm {

enum class FlightState : std::uint8_t { kIssued, kMoving, kDone, kFailed };

/// A ring of the last kEntries collectives; recording never allocates.
class FlightRecorder {
 public:
  /// Returns the sequence number, counted from 0. `name` is a string literal.
  std::uint64_t issue(const char* name, std::size_t bytes, Clock::time_point now);
  void set_state(std::uint64_t sequence, FlightState state, Clock::time_point now);
  std::uint64_t next_sequence() const { return next_; }
  /// Of the last one that was issued.
  const char* last_name() const { return last().name; }
  Clock::time_point last_issue() const { return last().issued; }
  /// The next one gets this number, which is not below next_sequence().
  void skip_to(std::uint64_t sequence) { next_ = sequence; }
  /// One line per entry, oldest first; times in seconds since the recorder was made.
  std::string text() const;

 private:
  static constexpr std::size_t kEntries = 64;
  struct Entry {
    std::uint64_t sequence = 0;
    const char* name = "";
    std::size_t bytes = 0;
    FlightState state = FlightState::kIssued;
    Clock::time_point issued, changed;
  };

  const Entry& last() const { return entries_[last_]; }

  Clock::time_point start_ = Clock::now();
  std::uint64_t next_ = 0;
  std::size_t last_ = 0;  ///< index of the entry of the last one
  std::array<Entry, kEntries> entries_{};
};

}  // namespace meshloom::comm
