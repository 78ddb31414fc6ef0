// SPDX-License-Identifier: Apache-2.0
// The daemon of one rank, from joined ranks to the end.
#pragma once

#include <string>

#include "daemon/comm/mesh/mpi_runtime.h"
#include "v1/config.pb.h"

namespace meshloom::control {

/// What main has found out.
struct DaemonOptions {
  v1::DaemonConfig config;  ///< every field filled in, paths absolute
  std::string version;
  std::string host;  ///< address for other hosts; empty: found out
};

/// Serves until it is told to stop. Every rank calls it, with the thread that made the runtime.
/// Returns the exit code: 0 after a stop in good order (the runtime may finalise), 1 where the
/// ranks fell out of step (they must leave without finalising), or what start-up failed with, the
/// same on every rank.
struct DaemonEnd {
  int exit_code = 0;
  bool in_step = true;
};
DaemonEnd run_daemon(comm::MpiRuntime& runtime, const DaemonOptions& options);

}  // namespace meshloom::control
