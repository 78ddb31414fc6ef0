// SPDX-License-Identifier: Apache-2.0
// RoleRules: which role an account of this host or a client's certificate has.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/control/access/identity.h"
#include "v1/config.pb.h"

namespace meshloom::control {

/// Throws InvalidArgument naming `what` unless `text` is viewer, submitter or admin.
Role parse_role(std::string_view text, std::string_view what);

/// Throws InvalidArgument naming `what` unless `name` is [a-z0-9][a-z0-9._@-]{0,62}, which is what
/// a token or a rule may call somebody; "admin" is the daemon's own.
void check_identity_name(std::string_view name, std::string_view what);

/// The rules of a daemon, in the order in which they count. A value; any thread may read it.
class RoleRules {
 public:
  RoleRules() = default;
  /// Throws InvalidArgument for a name or role that cannot be one.
  explicit RoleRules(const v1::AccessConfig& config);

  bool empty() const { return rules_.empty(); }
  /// Of an account that is in these groups.
  Role of_account(const std::string& name, const std::vector<std::string>& groups) const;
  Role of_certificate(const std::string& name) const;

 private:
  struct Rule {
    std::string name;
    bool is_group = false;
    Role role = Role::kNone;
  };
  std::vector<Rule> rules_;
};

}  // namespace meshloom::control
