// SPDX-License-Identifier: Apache-2.0
// meshloomd --check: whether a daemon could start with these settings, told without MPI.
#pragma once

#include <string>

#include "daemon/control/daemon_options.h"

namespace meshloom::control {

/// Returns one JSON object: state_dir, listen_given (else the address is the default), and
/// address_problem (why nobody can listen on it now, or nothing). Throws what keeps a daemon from
/// starting on this host whatever else runs: what check_data_dir(), checked_listen(),
/// check_access_files() and a config file that cannot be read throw, and FailedPrecondition
/// (STATE_DIR_NOT_OWN, STATE_DIR_NOT_WRITABLE). Makes and changes nothing.
std::string check_start(const ParsedDaemonOptions& parsed);

}  // namespace meshloom::control
