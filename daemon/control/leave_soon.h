// SPDX-License-Identifier: Apache-2.0
// A last resort against a rank that hangs.
#pragma once

#include <string>

namespace meshloom::control {

/// Ends the process with code 1 after ten seconds, whatever its other threads do: a rank that
/// cannot leave its collective must not keep the others waiting. `who` is for the log.
void leave_soon(const std::string& who);

}  // namespace meshloom::control
