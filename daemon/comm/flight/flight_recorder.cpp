// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/flight/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace meshloom::comm {
namespace {

const char* state_name(FlightState state) {
  switch (state) {
    case FlightState::kIssued: return "issued";
    case FlightState::kMoving: return "moving";
    case FlightState::kDone: return "done";
    case FlightState::kFailed: return "failed";
  }
  return "?";
}

}  // namespace

std::uint64_t FlightRecorder::issue(const char* name, std::size_t bytes, Clock::time_point now) {
  last_ = next_ % kEntries;
  entries_[last_] = {next_, name, bytes, FlightState::kIssued, now, now};
  return next_++;
}

void FlightRecorder::set_state(std::uint64_t sequence, FlightState state, Clock::time_point now) {
  Entry& entry = entries_[sequence % kEntries];
  if (entry.sequence != sequence) return;  // pushed out by later ones
  entry.state = state;
  entry.changed = now;
}

std::string FlightRecorder::text() const {
  std::string out;
  const std::uint64_t count = std::min<std::uint64_t>(next_, kEntries);
  const auto seconds = [&](Clock::time_point t) {
    return std::chrono::duration<double>(t - start_).count();
  };
  for (std::uint64_t i = next_ - count; i < next_; ++i) {
    const Entry& e = entries_[i % kEntries];
    if (e.sequence != i || *e.name == '\0') continue;  // a number that was skipped
    fmt::format_to(std::back_inserter(out), "#{} {} {} bytes {} issued {:.6f} {} {:.6f}\n",
                   e.sequence, e.name, e.bytes, state_name(e.state), seconds(e.issued),
                   e.state == FlightState::kDone ? "done" : "changed", seconds(e.changed));
  }
  return out;
}

}  // namespace meshloom::comm
