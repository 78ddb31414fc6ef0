// SPDX-License-Identifier: Apache-2.0
// FlightRecorder: the calls of one group in the flight log of its rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "daemon/comm/diagnosis/flight_log.h"
#include "daemon/comm/signature.h"

namespace meshloom::comm {

/// Recording never allocates.
class FlightRecorder {
 public:
  /// `log` is the rank's own; `id` is the same on all members and another one in every other group;
  /// `members` are ranks of the world.
  FlightRecorder(FlightLog log, const std::string& name, std::uint64_t id,
                 std::span<const int> members)
      : log_(log), group_(log_.add_group(name, id, members)) {}
  ~FlightRecorder() { log_.end_group(group_); }
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// Issued holds the number of a call among all calls of the group, counted from 0, and its entry
  /// in the log.
  struct Issued {
    std::uint64_t sequence;
    FlightLog::Ticket ticket;
  };
  /// `number` is the one that all ranks agree on, -1 for sends and receives; `peer` is theirs.
  Issued issue(const Signature& signature, std::int64_t number, int peer, std::size_t bytes,
               Clock::time_point now);
  void set_state(FlightLog::Ticket ticket, FlightState state, Clock::time_point now) {
    log_.set_state(ticket, state, now);
  }

  std::uint64_t next_sequence() const { return next_; }
  /// Returns the name of the kind of the collective that was issued last.
  const char* last_name() const { return kind_name(last_kind_); }
  Clock::time_point last_issue() const { return last_issue_; }
  /// The next one gets this number, which is not below next_sequence().
  void skip_to(std::uint64_t sequence) { next_ = sequence; }
  /// Returns the last calls of the group that the log still holds, one line each, oldest first;
  /// times in seconds since the recorder was made.
  std::string text() const;

 private:
  FlightLog log_;
  std::uint32_t group_;
  Clock::time_point start_ = Clock::now();
  std::uint64_t next_ = 0;
  CollectiveKind last_kind_ = CollectiveKind::kNone;
  Clock::time_point last_issue_;
};

}  // namespace meshloom::comm
