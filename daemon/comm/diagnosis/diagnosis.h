// SPDX-License-Identifier: Apache-2.0
// Diagnosis: the logs of all ranks side by side: which collective does not end, who joined, who
// never came, who differs, and who keeps all the others waiting.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/comm/diagnosis/flight_field.h"
#include "daemon/comm/symm_mem/peer_process.h"

namespace meshloom::comm {

/// A report sees this of a rank.
struct RankFlight {
  int rank = -1;
  std::string unreadable;  ///< why its log cannot be read; empty: it was
  FlightSnapshot log;
  PeerProcess::State process = PeerProcess::State::kUnknown;

  bool stands() const {
    return process == PeerProcess::State::kStopped || process == PeerProcess::State::kGone;
  }
};

/// OpenCollective is a collective that some rank is in, or a send or receive. Ranks are those of
/// the world.
struct OpenCollective {
  std::string group;
  std::uint64_t group_id = 0;
  std::int64_t number = -1;    ///< that all ranks agree on; -1: a send or receive
  std::string what;            ///< "all_reduce #12 of group 'dp' (float32, sum, 4096 bytes)"
  std::vector<int> waiting;    ///< have joined and are in it
  std::vector<int> done;       ///< are through with it
  std::vector<int> missing;    ///< have not come
  std::vector<int> unknown;    ///< their logs cannot be read, or tell no more
  std::vector<int> differing;  ///< are in another one under this number
  std::vector<std::string> differences;  ///< "rank 2 is in broadcast #12 of ..."
  std::vector<int> stopped;              ///< joined, but their processes do not run any more
  std::vector<int> roots;                ///< who keeps it waiting in the end
  std::string root_cause;                ///< the same in words; empty: nobody stands out
};

struct FlightReport {
  Clock::time_point when;
  std::vector<RankFlight> ranks;     ///< by rank of the world
  std::vector<OpenCollective> open;  ///< the oldest first
  std::optional<AbortRecord> abort;  ///< the newest that the ranks of the host agreed on
};

/// Reads memory and /proc alone: no rank has to answer, none is disturbed.
FlightReport read_flight_report(const FlightField& field);

/// Returns the open collective of a group under a number of the group's collectives, as `rank` sees
/// it; null if it has none.
const OpenCollective* find_open(const FlightReport& report, std::uint64_t group_id,
                                std::int64_t number, int rank);

/// Writes for people the abort record, open collectives, and the last `entries` calls of each rank.
std::string to_text(const FlightReport& report, std::size_t entries);

/// Returns "all_reduce #12 of group 'dp' (float32, sum, 4096 bytes)".
std::string describe(const FlightEntry& entry, const std::string& group);

}  // namespace meshloom::comm
