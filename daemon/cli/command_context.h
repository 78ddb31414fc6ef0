// SPDX-License-Identifier: Apache-2.0
// CommandContext carries what the options of the whole program say, and what the command is to do.
#pragma once

#include <functional>
#include <string>

#include "daemon/base/env.h"
#include "daemon/cli/client.h"
#include "daemon/cli/credentials.h"
#include "daemon/cli/daemon_address.h"

namespace meshloom::cli {

/// All commands share one, which outlives the parser's callbacks.
struct CommandContext {
  AskedDaemon asked;
  base::Environment environment;
  CredentialFiles credentials;  ///< that the line names
  std::string client;           ///< name of this client; empty: by its address
  /// The token is that of the run that the command is about; empty: it does without.
  std::string run_token;
  std::string default_run_token;  ///< for commands that need one and are given none
  bool json = false;
  bool all = false;              ///< of a list: what belongs to other owners, too
  std::string colours = "auto";  ///< always, never, or auto: on a terminal
  /// Returns whether what goes to standard output is to have colours.
  bool colour() const;
  std::function<ExitCode(Client&)> action;
};

}  // namespace meshloom::cli
