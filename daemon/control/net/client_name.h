// SPDX-License-Identifier: Apache-2.0
// Who calls: the name that a client chose, or where it calls from.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

namespace meshloom::control {

/// The metadata "meshloom-client", or "address:" and the peer's address (client_of_peer), which no
/// chosen name can be. It tells clients apart and proves nothing. Throws InvalidArgument
/// (CLIENT_INVALID) unless the name is [A-Za-z0-9][A-Za-z0-9._-]{0,62}.
std::string client_name(const grpc::ServerContextBase& context);

}  // namespace meshloom::control
