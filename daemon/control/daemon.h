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

struct DaemonEnd {
  int exit_code = 0;    ///< 0 after a stop in good order, 1 after a failure
  bool in_step = true;  ///< false: the ranks must leave without finalising the runtime
  /// Threads of this process hang in a file system: it must end without waiting for them.
  bool hanging = false;
};

/// Serves until it is told to stop. Every rank calls it, with the thread that made the runtime. A
/// start that fails on rank 0 ends with the same code on all.
DaemonEnd run_daemon(comm::MpiRuntime& runtime, const DaemonOptions& options);

}  // namespace meshloom::control
