// SPDX-License-Identifier: Apache-2.0
// ClientService: a service that clients call.
#pragma once

#include "daemon/control/host/daemon_service.h"

namespace meshloom::control {

/// Its request_stop() ends calls that the ranks would wait for, while others are still answered;
/// its stop() comes when no call comes any more.
class ClientService : public DaemonService {
 public:
  /// Calls that wait end, and those that take long end soon: the door closes. It does not wait.
  virtual void end_calls() {}
};

}  // namespace meshloom::control
