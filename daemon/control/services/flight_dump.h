// SPDX-License-Identifier: Apache-2.0
// A flight report as the message that clients get.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/comm/diagnosis/diagnosis.h"
#include "v1/worker_service.pb.h"

namespace meshloom::control {

/// `hosts` by rank, empty where a rank has not said its host; `entries` is how many calls of each
/// rank are wanted. A rank that cannot be read is named with its host.
void fill_flight_dump(comm::FlightReport report, const std::vector<std::string>& hosts,
                      std::size_t entries, v1::DumpFlightResponse* response);

/// Writes what all ranks of the host did last to a file, with the time and the cause, which goes to
/// the log too. Thread-safe; what the file held stands behind it, as far as it fits into 1 MiB: a
/// death is found by its connection and by its collective, in either order. A file that cannot be
/// written is said in the log.
void write_flight_file(const comm::FlightField& flight, const std::filesystem::path& path,
                       const std::string& cause);

}  // namespace meshloom::control
