// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/grpc_caller.h"

#include <optional>
#include <string>

#include "daemon/control/net/listen_address.h"

namespace meshloom::control {
namespace {

std::optional<std::string> metadata_of(const grpc::ServerContextBase& context, const char* key) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  return std::string(found->second.data(), found->second.size());
}

}  // namespace

Caller caller_of(const grpc::ServerContextBase& context) {
  return {client_of_peer(context.peer()), metadata_of(context, kClientKey),
          metadata_of(context, kRunTokenKey).value_or(""), Identity::admin()};
}

}  // namespace meshloom::control
