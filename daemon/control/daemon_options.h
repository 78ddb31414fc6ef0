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

/// The file that --config names, as this rank's host has it.
struct ConfigFile {
  std::string path;                 ///< empty: --config is not given
  std::optional<std::string> text;  ///< nothing if it cannot be read here
  std::string refusal;              ///< why not
};

struct ParsedDaemonOptions {
  DaemonOptions options;         ///< those of a file that cannot be read here are missing
  std::optional<int> exit_code;  ///< set if --help or --version was answered, or usage was wrong
  DaemonFlags flags;
  base::Environment env;
  ConfigFile file;
};

/// Throws InvalidArgument or NotFound for values that are wrong. A config file that is not there or
/// that may not be read is for agree_on_config to judge.
ParsedDaemonOptions parse_daemon_options(int argc, char** argv, const base::Environment& env);

/// Fills in the options anew, with this text for the config file.
void take_config_text(const std::string& text, ParsedDaemonOptions* parsed);

/// Throws NotFound (DATA_DIR_MISSING) unless all folders of the data dir are there. For rank 0,
/// whose disk the data are on; other hosts need not have them.
void check_data_dir(const v1::DaemonConfig& config);

}  // namespace meshloom::control
