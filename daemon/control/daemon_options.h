// SPDX-License-Identifier: Apache-2.0
// The command line of meshloomd: flags over environment over --config over defaults.
#pragma once

#include <optional>

#include "daemon/base/env.h"
#include "daemon/control/daemon.h"

namespace meshloom::control {

struct ParsedDaemonOptions {
  DaemonOptions options;
  std::optional<int> exit_code;  ///< set where --help or --version was answered, or usage was wrong
};

/// Throws InvalidArgument or NotFound for values that are wrong, such as a data dir that does not
/// exist.
ParsedDaemonOptions parse_daemon_options(int argc, char** argv, const base::Environment& env);

}  // namespace meshloom::control
