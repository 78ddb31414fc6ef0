// SPDX-License-Identifier: Apache-2.0
// Errors of this host alone are thrown as the client's own.
#pragma once

#include "daemon/cli/exit_code.h"
#include "kernels/base/error.h"

namespace meshloom::cli {

/// Runs a command that works on this host alone, and throws its errors as CliError, so that they
/// are told in JSON where the user asks for it.
template <typename Command>
ExitCode telling_errors(Command&& command) {
  try {
    return command();
  } catch (const Error& error) {
    v1::ErrorDetails details;
    details.set_message(error.what());
    details.mutable_info()->set_reason(error.reason());
    const bool wrong =
        error.kind() == ErrorKind::kInvalidArgument || error.kind() == ErrorKind::kNotFound;
    throw CliError(wrong ? kUsage : kFailed, error.what(), details);
  }
}

}  // namespace meshloom::cli
