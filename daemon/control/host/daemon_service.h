// SPDX-License-Identifier: Apache-2.0
// DaemonService: a part of the daemon that begins and ends with it.
#pragma once

namespace meshloom::control {

/// The verbs by which a ServiceTable begins and ends its services. A service that has nothing to do
/// for one leaves it as it is.
class DaemonService {
 public:
  virtual ~DaemonService() = default;
  /// Called once, when all ranks have joined, unless the daemon has stopped the service before.
  virtual void start() {}
  /// Whatever the ranks or other services would wait for ends soon. It does not wait. Any thread
  /// may call it, also again and after stop().
  virtual void request_stop() {}
  /// Waits for what is left, after request_stop(). Called once, also of a service that was not
  /// started. Nothing that was made before the service has stopped yet.
  virtual void stop() {}
};

}  // namespace meshloom::control
