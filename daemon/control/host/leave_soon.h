// SPDX-License-Identifier: Apache-2.0
// A last resort against a rank that hangs.
#pragma once

#include <chrono>
#include <string>

namespace meshloom::control {

/// Ends the process with code 1 after ten seconds, whatever its other threads do: a rank that
/// cannot leave its collective must not keep the others waiting. `who` is for the log.
void leave_soon(const std::string& who);
/// The same after a time of one's own; `what` was not done by then.
void leave_after(const std::string& what, std::chrono::milliseconds time);

}  // namespace meshloom::control
