// SPDX-License-Identifier: Apache-2.0
// Caller: who makes a call, by whatever door it came.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "daemon/control/access/identity.h"

namespace meshloom::control {

/// The keys of a call's metadata.
inline constexpr const char* kClientKey = "meshloom-client";
inline constexpr const char* kRunTokenKey = "meshloom-run-token";

/// A value that a door makes once for a call (grpc_caller.h makes it of a gRPC call) and hands to
/// the handler, which asks nothing else about who calls. It lives as long as whoever keeps it. Any
/// thread may read it.
class Caller {
 public:
  /// `address`: without a port, as client_of_peer has it. `given_name`: as the caller has sent it,
  /// nothing if it gave none; `run_token`: empty if it gave none; `refusal`: as refusal() has it.
  Caller(std::string address, std::optional<std::string> given_name, std::string run_token,
         Identity identity, std::string refusal = "")
      : address_(std::move(address)),
        given_name_(std::move(given_name)),
        run_token_(std::move(run_token)),
        identity_(std::move(identity)),
        refusal_(std::move(refusal)) {}

  const std::string& address() const { return address_; }
  /// What one client may have at once is counted by it, since names that are not proven cost
  /// nothing: who was proven, but the address of whoever is the daemon's own account, which many
  /// may be of a daemon that was started with --insecure.
  const std::string& client() const {
    return identity_.name.empty() || identity_.name == Identity::admin().name ? address_
                                                                              : identity_.name;
  }
  /// The name that the caller has given itself, or "address:" and its address, which no chosen name
  /// can be. It tells clients apart and proves nothing. Throws InvalidArgument (CLIENT_INVALID)
  /// unless a given name is [A-Za-z0-9][A-Za-z0-9._-]{0,62}; whoever does not ask does not care.
  std::string name() const;
  /// Whose uploads and request ids are: of an admin its name(), so that the programs of one user
  /// keep apart; of others "user:" and the identity's name, which no chosen name can be.
  std::string holder() const { return identity_.is_admin() ? name() : "user:" + identity_.name; }
  /// The secret of the run that the caller holds; empty if it holds none.
  const std::string& run_token() const { return run_token_; }
  /// Who was proven to call: what permissions and owners go by.
  const Identity& identity() const { return identity_; }
  /// Why nobody was proven, or whoever was has no role, for the text of a refusal; empty otherwise.
  const std::string& refusal() const { return refusal_; }
  Caller with_identity(Identity identity) const {
    return {address_, given_name_, run_token_, std::move(identity), refusal_};
  }

 private:
  std::string address_;
  std::optional<std::string> given_name_;
  std::string run_token_;
  Identity identity_;
  std::string refusal_;
};

}  // namespace meshloom::control
