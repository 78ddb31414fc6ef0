// SPDX-License-Identifier: Apache-2.0
// StopRequests: who is asked to stop the daemon.
#pragma once

#include <string>

namespace meshloom::control {

/// Signals, clients and other ranks ask it. Any thread may do so, again and again.
class StopRequests {
 public:
  virtual ~StopRequests() = default;
  /// `cause` is for the log. It does not wait for the stop.
  virtual void request_stop(const std::string& cause) = 0;
};

}  // namespace meshloom::control
