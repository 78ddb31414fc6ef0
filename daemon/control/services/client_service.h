// SPDX-License-Identifier: Apache-2.0
// ClientService: a service that clients call.
#pragma once

#include "daemon/control/host/daemon_service.h"
#include "daemon/control/services/gate.h"

namespace meshloom::control {

/// Its request_stop() ends calls that the ranks would wait for, while others are still answered;
/// its stop() comes when no call comes any more.
class ClientService : public DaemonService {
 public:
  /// Calls that wait end, and those that take long end soon: the door closes. It does not wait.
  virtual void end_calls() {}

  /// By which its callers come; it outlives the service. Call it before the first call comes.
  void set_gate(const Gate& gate) { gate_ = &gate; }

 protected:
  const Gate& gate() const { return *gate_; }

 private:
  /// Lets admins in alone.
  static const Gate& first_gate() {
    static const Gate gate{};
    return gate;
  }

  const Gate* gate_ = &first_gate();
};

}  // namespace meshloom::control
