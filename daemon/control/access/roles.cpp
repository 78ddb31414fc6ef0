// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/roles.h"

#include <algorithm>

#include "daemon/base/utf8.h"
#include "kernels/base/error.h"

namespace meshloom::control {
Role parse_role(std::string_view text, std::string_view what) {
  for (const Role role : {Role::kViewer, Role::kSubmitter, Role::kAdmin})
    if (role_name(role) == text) return role;
  throw InvalidArgument(fmt::format("{} is \"{}\", expected viewer, submitter or admin", what,
                                    base::printable_text(std::string(text), 80, false)),
                        "ROLE_INVALID", {{"field", "role"}});
}

void check_identity_name(std::string_view name, std::string_view what) {
  constexpr std::size_t kLongest = 63;
  const auto is_first = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  const bool valid = !name.empty() && name.size() <= kLongest && is_first(name[0]) &&
                     std::all_of(name.begin(), name.end(), [&](char c) {
                       return is_first(c) || c == '.' || c == '_' || c == '@' || c == '-';
                     });
  if (!valid)
    throw InvalidArgument(
        fmt::format("{} \"{}\" is not valid, expected [a-z0-9][a-z0-9._@-]{{0,62}}", what,
                    base::printable_text(std::string(name), 80, false)),
        "NAME_INVALID", {{"field", "name"}});
  if (name == Identity::admin().name)
    throw InvalidArgument(
        fmt::format("{} \"{}\" is the name of the daemon's own account; choose another", what,
                    name),
        "NAME_RESERVED", {{"field", "name"}});
}

RoleRules::RoleRules(const v1::AccessConfig& config) {
  for (const v1::RoleRule& rule : config.roles()) {
    const bool is_group = rule.name().starts_with("@");
    const std::string name = is_group ? rule.name().substr(1) : rule.name();
    if (name.empty() || name == Identity::admin().name)
      throw InvalidArgument(
          fmt::format("--role: \"{}\" cannot have a role; name an account, @ and a group, or the "
                      "first name of a certificate",
                      rule.name()),
          "NAME_INVALID");
    rules_.push_back(
        {name, is_group, parse_role(rule.role(), fmt::format("--role: that of {}", rule.name()))});
  }
}

Role RoleRules::of_account(const std::string& name, const std::vector<std::string>& groups) const {
  for (const Rule& rule : rules_)
    if (rule.is_group ? std::find(groups.begin(), groups.end(), rule.name) != groups.end()
                      : rule.name == name)
      return rule.role;
  return Role::kNone;
}

Role RoleRules::of_certificate(const std::string& name) const {
  for (const Rule& rule : rules_)
    if (!rule.is_group && rule.name == name) return rule.role;
  return Role::kNone;
}

}  // namespace meshloom::control
