// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/flight/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace meshloom::comm {
namespace {

// Lines of a text: what a person reads of one group.
constexpr std::size_t kMostLines = 64;

}  // namespace

FlightRecorder::Issued FlightRecorder::issue(const Signature& signature, std::int64_t number,
                                             int peer, std::size_t bytes, Clock::time_point now) {
  FlightEntry entry;
  entry.group = group_;
  entry.sequence = next_;
  entry.number = number;
  entry.kind = signature.kind;
  entry.dtype = signature.dtype;
  entry.op = signature.op;
  entry.root = number < 0 ? peer : signature.root;
  entry.bytes = bytes;
  entry.elements = signature.elements;
  last_kind_ = signature.kind;
  last_issue_ = now;
  return {next_++, log_.issue(entry, now)};
}

std::string FlightRecorder::text() const {
  const auto log = log_.read();
  std::vector<FlightEntry> mine;
  for (const FlightEntry& entry : log->entries)
    if (entry.group == group_) mine.push_back(entry);
  const auto seconds = [&](Clock::time_point t) {
    return std::chrono::duration<double>(t - start_).count();
  };
  std::string out;
  for (std::size_t i = mine.size() - std::min(mine.size(), kMostLines); i < mine.size(); ++i) {
    const FlightEntry& e = mine[i];
    fmt::format_to(std::back_inserter(out), "#{} {} {} bytes {} issued {:.6f} {} {:.6f}\n",
                   e.sequence, kind_name(e.kind), e.bytes, to_string(e.state), seconds(e.issued),
                   e.state == FlightState::kDone ? "done" : "changed", seconds(e.changed));
  }
  return out;
}

}  // namespace meshloom::comm
