// SPDX-License-Identifier: Apache-2.0
// CallerIdentifier: tells of each call who makes it, from what it and its connection show.
#pragma once

#include <sys/types.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "daemon/control/access/failed_attempts.h"
#include "daemon/control/access/identity.h"
#include "daemon/control/access/roles.h"
#include "daemon/control/access/token_store.h"

namespace meshloom::control {

/// What a call shows.
struct Evidence {
  std::string address{};                       ///< of the client, without a port
  std::optional<std::string> authorization{};  ///< of the call's metadata
  std::optional<uid_t> account{};              ///< at the other end, as the kernel knows it
  bool has_certificate = false;                ///< of the client, which its CA has signed
  std::string certificate_name{};              ///< its first subject alternative name
};

struct Proven {
  Identity identity;
  std::string refusal;  ///< why nobody was proven, or has no role; empty: somebody with a role was
};

/// A token that is shown counts before a certificate, and that before an account; who shows one
/// that is wrong is nobody, whatever else it has. Any thread may call any function.
class CallerIdentifier {
 public:
  struct Options {
    bool everybody_is_admin = false;  ///< --insecure
    RoleRules rules = {};
    TokenStore* tokens = nullptr;  ///< outlives it; null: none is taken
  };
  explicit CallerIdentifier(Options options) : options_(std::move(options)) {}

  Proven identify(const Evidence& evidence);
  /// A connection of this account was accepted: its name and groups are looked up anew, which may
  /// take time, and count for its calls. Returns who it is.
  Identity account_connected(uid_t account);
  /// Whether accounts other than the daemon's own may have a role.
  bool knows_other_accounts() const { return !options_.rules.empty(); }
  bool everybody_is_admin() const { return options_.everybody_is_admin; }

 private:
  Proven by_token(const Evidence& evidence, std::string_view token);
  Proven by_certificate(const Evidence& evidence) const;
  Proven by_account(uid_t account);

  Options options_;
  FailedAttempts failed_;
  std::mutex mutex_;
  std::map<uid_t, Identity> accounts_;  ///< that have connected, but for the daemon's own
};

}  // namespace meshloom::control
