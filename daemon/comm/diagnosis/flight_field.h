// SPDX-License-Identifier: Apache-2.0
// FlightField: the flight logs of all ranks, as one of them sees them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "daemon/comm/diagnosis/flight_log.h"

namespace meshloom::comm {

/// Nothing changes after it is made, so any thread of the process may read it.
struct FlightField {
  struct Log {
    FlightLog log;                 ///< none: it cannot be read from here
    std::string why_not;           ///< then: why
    std::shared_ptr<void> memory;  ///< what the log lies in
  };

  int rank = 0;
  std::vector<Log> logs;  ///< by rank of the world; that of `rank` is there in any case

  FlightLog own() const { return logs[static_cast<std::size_t>(rank)].log; }
  /// The ranks that see each other's logs agree on one: the first of them has it.
  AbortBoard& abort_board() const {
    for (const Log& one : logs)
      if (one.log) return one.log.abort_board();
    return own().abort_board();
  }
};

/// Makes a field in which a rank sees itself alone, in private memory; `why_not` is said of the
/// others.
std::shared_ptr<const FlightField> make_private_flight_field(int rank, int world_size,
                                                             const std::string& why_not);

}  // namespace meshloom::comm
