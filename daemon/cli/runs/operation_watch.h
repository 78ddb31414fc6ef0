// SPDX-License-Identifier: Apache-2.0
// `operation watch` shows an operation until it ends.
#pragma once

#include <string>

#include "daemon/cli/client.h"

namespace meshloom::cli {

struct OperationWatchOptions {
  std::string operation;
  bool json = false;  ///< every message as a line of JSON
};

/// Shows states, and the tokens of a sample as they are drawn: of one sequence on one line, of
/// several a line each time, with its index from the second on; bytes or ids. Connects again if the
/// connection breaks, and goes on where it was. Throws CliError with the operation's error if it
/// has failed or was cancelled. Ctrl-C leaves the operation alone and is 130.
ExitCode watch_operation(Client& client, const OperationWatchOptions& options);

}  // namespace meshloom::cli
