// SPDX-License-Identifier: Apache-2.0
// The command line of meshloomd: flags over environment over --config over defaults.
#pragma once

#include <optional>
#include <string>

#include "daemon/base/env.h"
#include "daemon/control/daemon.h"

namespace CLI {
class App;
}

namespace meshloom::control {

/// As given on the command line.
struct DaemonFlags {
  std::string config;
  std::optional<std::string> listen, state_dir, log_level, mpi_interface;
  std::vector<std::string> data_dirs;
  std::optional<int> world_size, threads;
  std::optional<std::int64_t> max_stalled_attempts;
  bool no_resume = false;
  bool insecure = false;
};

/// `flags` outlives the parsing.
void declare_daemon_options(CLI::App& app, DaemonFlags& flags);

struct ParsedDaemonOptions {
  DaemonOptions options;
  std::optional<int> exit_code;  ///< set if --help or --version was answered, or usage was wrong
};

/// Throws InvalidArgument or NotFound for values that are wrong.
ParsedDaemonOptions parse_daemon_options(int argc, char** argv, const base::Environment& env);

/// Throws NotFound (DATA_DIR_MISSING) unless all folders of the data dir are there. For rank 0,
/// whose disk the data are on; other hosts need not have them.
void check_data_dir(const v1::DaemonConfig& config);

}  // namespace meshloom::control
