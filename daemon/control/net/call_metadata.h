// SPDX-License-Identifier: Apache-2.0
// What a call says beside its request: who calls, tokens.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

namespace meshloom::control {

/// The value of a metadata key; empty if the client gave none.
std::string metadata_of(const grpc::ServerContextBase& context, const char* key);

/// The metadata "meshloom-client", or "address:" and the peer's address (client_of_peer), which no
/// chosen name can be. It tells clients apart and proves nothing. Throws InvalidArgument
/// (CLIENT_INVALID) unless the name is [A-Za-z0-9][A-Za-z0-9._-]{0,62}.
std::string client_name(const grpc::ServerContextBase& context);

}  // namespace meshloom::control
