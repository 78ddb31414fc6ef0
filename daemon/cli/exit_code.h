// SPDX-License-Identifier: Apache-2.0
// The client's exit code tells what became of a command, and CliError carries it.
#pragma once

#include <stdexcept>
#include <string>

#include "v1/error.pb.h"

namespace meshloom::cli {

enum ExitCode : int {
  kOk = 0,
  kFailed = 1,       ///< the job or request failed
  kUsage = 2,        ///< wrong usage or config
  kUnreachable = 3,  ///< no daemon at the address
  kCancelled = 4,    ///< the job was cancelled
  kTimedOut = 124,   ///< what was waited for has not come in time
  kInterrupted = 130,
};

/// A CliError ends the program with this code after its text was printed.
class CliError : public std::runtime_error {
 public:
  CliError(ExitCode code, const std::string& message, v1::ErrorDetails details = {})
      : std::runtime_error(message), code_(code), details_(std::move(details)) {}
  ExitCode code() const { return code_; }
  /// Returns the details as the daemon gave them; empty if it was not the daemon's error.
  const v1::ErrorDetails& details() const { return details_; }

 private:
  ExitCode code_;
  v1::ErrorDetails details_;
};

}  // namespace meshloom::cli
