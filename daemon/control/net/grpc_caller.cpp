// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/grpc_caller.h"

#include <optional>
#include <string>
#include <utility>

#include "daemon/control/access/roles.h"
#include "daemon/control/net/call_identity.h"
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
  Identity identity;
  const std::string role = metadata_of(context, kProvenRoleKey).value_or("");
  if (!role.empty() && role != role_name(Role::kNone)) identity.role = parse_role(role, "role");
  identity.name = metadata_of(context, kProvenNameKey).value_or("");
  return {client_of_peer(context.peer()), metadata_of(context, kClientKey),
          metadata_of(context, kRunTokenKey).value_or(""), std::move(identity),
          metadata_of(context, kProvenRefusalKey).value_or("")};
}

}  // namespace meshloom::control
