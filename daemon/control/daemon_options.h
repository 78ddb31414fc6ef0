// SPDX-License-Identifier: Apache-2.0
// The command line of meshloomd: flags over environment over --config over defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/env.h"
#include "daemon/control/daemon.h"
#include "daemon/control/net/listen_address.h"

namespace CLI {
class App;
}

namespace meshloom::control {

/// As given on the command line.
struct DaemonFlags {
  std::string config;
  std::optional<std::string> listen, state_dir, log_level, mpi_interface, on_event;
  std::vector<std::string> data_dirs;
  std::optional<std::string> tls_cert, tls_key, tls_client_ca, tokens, socket;
  std::vector<std::string> roles;
  std::optional<int> world_size, threads;
  std::optional<std::int64_t> max_stalled_attempts;
  bool no_resume = false;
  bool insecure = false;
  bool check = false;
  bool print_manual = false;
  std::string print_completion;  ///< a shell; empty: not asked for
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
  DaemonOptions options;  ///< those of a file that cannot be read here are missing
  /// Set if the command line asks for a text such as --help, or is wrong, which is the same on all
  /// ranks; `answer` is to be shown then: on standard output if the code is 0.
  std::optional<int> exit_code;
  std::string answer;
  DaemonFlags flags;
  base::Environment env;
  ConfigFile file;
};

/// Throws InvalidArgument or NotFound for values of the environment or of the config file that are
/// wrong; those of flags are in `answer`. A config file that is not there or
/// that may not be read is for agree_on_config to judge.
ParsedDaemonOptions parse_daemon_options(int argc, char** argv, const base::Environment& env);

/// Fills in the options anew, with this text for the config file.
void take_config_text(const std::string& text, ParsedDaemonOptions* parsed);

/// Throws NotFound (DATA_DIR_MISSING) unless all folders of the data dir are there. For rank 0,
/// whose disk the data are on; other hosts need not have them.
void check_data_dir(const v1::DaemonConfig& config);
/// Where to listen. Throws as resolve_listen_address(), and InvalidArgument (LISTEN_INSECURE) for
/// an address that other machines reach without TLS, unless the user has allowed that.
ListenAddress checked_listen(const v1::DaemonConfig& config);

}  // namespace meshloom::control
