// SPDX-License-Identifier: Apache-2.0
// ClientDoor: the gRPC server through which clients call services.
#pragma once

#include <grpcpp/grpcpp.h>

#include <concepts>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/control/net/grpc_server.h"
#include "daemon/control/services/client_access.h"
#include "daemon/control/services/client_service.h"

namespace meshloom::control {

/// It is stopped before the services that it was given. Those outlive it.
class ClientDoor final : public DaemonService {
 public:
  /// By `gate` callers are let in; what it refers to outlives the door.
  explicit ClientDoor(Gate::Options gate) : gate_(std::move(gate)) {}

  /// Lets clients call a service. Call it before open().
  template <typename T>
  requires std::derived_from<T, grpc::Service> && std::derived_from<T, ClientService>
  void add(T& service) {
    service.set_gate(gate_);
    grpc_services_.push_back(&service);
    services_.push_back(&service);
  }
  /// Listens, also on the sockets of `access`, which outlives it; health is NOT_SERVING at first.
  /// Throws FailedPrecondition (CANNOT_LISTEN).
  void open(const ListenAddress& listen, ClientAccess& access, int most_connections);
  int port() const { return server_->port(); }
  /// Says in the health whether the daemon serves. Any thread, after open().
  void set_serving(bool serving) { server_->set_serving(serving); }
  /// Nobody comes in any more; calls that wait are ended and those in flight get a moment.
  void stop() override;

 private:
  const Gate gate_;
  std::vector<grpc::Service*> grpc_services_;
  std::vector<ClientService*> services_;
  std::unique_ptr<GrpcServer> server_;  ///< once it is open
};

}  // namespace meshloom::control
