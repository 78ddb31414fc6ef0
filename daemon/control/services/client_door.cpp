// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/client_door.h"

namespace meshloom::control {

void ClientDoor::open(const ListenAddress& listen, ClientAccess& access, int most_connections) {
  server_ =
      std::make_unique<GrpcServer>(GrpcServerOptions{.listen = listen,
                                                     .services = grpc_services_,
                                                     .most_connections = most_connections,
                                                     .health = true,
                                                     .identifier = &access.identifier(),
                                                     .tls = access.tls(),
                                                     .unix_listeners = access.unix_listeners()});
}

void ClientDoor::stop() {
  server_->set_serving(false);
  for (ClientService* service : services_) service->end_calls();
  server_->shutdown();
}

}  // namespace meshloom::control
