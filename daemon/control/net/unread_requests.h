// SPDX-License-Identifier: Apache-2.0
// What a client hears whose request is no message of its method.
#pragma once

#include <grpcpp/support/server_interceptor.h>

namespace meshloom::control {

/// gRPC ends a call whose request it cannot read before any handler has it, with INTERNAL, or
/// UNIMPLEMENTED where the method is a callback method, and without a text: as if the daemon were
/// broken or of another version. Calls of a server with this factory end with INVALID_ARGUMENT
/// (REQUEST_UNREADABLE) instead.
class UnreadRequests final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override;
};

}  // namespace meshloom::control
