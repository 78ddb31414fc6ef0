// SPDX-License-Identifier: Apache-2.0
// The one place where a gRPC call becomes a Caller.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <utility>

#include "daemon/control/net/caller.h"
#include "daemon/control/net/status.h"

namespace meshloom::control {

/// Call it once for a call of a GrpcServer, which has found out who makes it, as long as gRPC has
/// the context.
Caller caller_of(const grpc::ServerContextBase& context);

/// Runs handler(const Caller&), which asks who calls, as guarded() in status.h does.
template <typename Handler>
grpc::Status guarded(const char* method, const grpc::ServerContextBase& context,
                     Handler&& handler) {
  return guarded(method, [&] { handler(caller_of(context)); });
}

/// The same for a request that is no verb of a run.
template <typename Handler>
grpc::Status guarded(const char* method, const grpc::ServerContextBase& context,
                     const google::protobuf::Message& request, Handler&& handler) {
  return guarded(method, request, [&] { handler(caller_of(context)); });
}

}  // namespace meshloom::control
