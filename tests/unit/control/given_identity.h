// SPDX-License-Identifier: Apache-2.0
// Who a test says that a call is from: metadata in the place of a proof.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "daemon/control/access/identity.h"

namespace meshloom::control {

// Who calls in tests.
inline const Identity kAlice{"alice", Role::kSubmitter}, kBob{"bob", Role::kSubmitter},
    kVera{"vera", Role::kViewer}, kRoot{"root", Role::kAdmin}, kNobody{"", Role::kNone};

inline constexpr const char* kTestName = "test-name";
inline constexpr const char* kTestRole = "test-role";

/// An admin where nothing is given.
inline Identity given_identity(const grpc::ServerContextBase& context) {
  const auto value = [&](const char* key) {
    const auto found = context.client_metadata().find(key);
    return found == context.client_metadata().end()
               ? std::string()
               : std::string(found->second.data(), found->second.size());
  };
  const std::string role = value(kTestRole);
  for (const Role known : {Role::kNone, Role::kViewer, Role::kSubmitter})
    if (role == role_name(known)) return {value(kTestName), known};
  return role.empty() ? Identity::admin() : Identity{value(kTestName), Role::kAdmin};
}

inline void give_identity(const Identity& identity, grpc::ClientContext* context) {
  context->AddMetadata(kTestName, identity.name);
  context->AddMetadata(kTestRole, role_name(identity.role));
}

}  // namespace meshloom::control
