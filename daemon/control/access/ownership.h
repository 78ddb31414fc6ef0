// SPDX-License-Identifier: Apache-2.0
// Ownership: whose an object is, and who else may look at it or use it.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/control/access/identity.h"

namespace meshloom::control {

/// What stands in the way between who calls and an object.
enum class Relation {
  kOwn,     ///< it is the caller's; of the admins, each one's
  kShared,  ///< it is another's, who lets the caller look at it or use it
  kOther,   ///< it is another's
};

/// A value.
struct Ownership {
  std::string owner;                     ///< Identity::owner()
  bool shared = false;                   ///< with everybody
  std::vector<std::string> shared_with;  ///< names of identities

  Relation to(const Identity& who) const {
    if (owner == who.owner()) return Relation::kOwn;
    const bool named =
        std::find(shared_with.begin(), shared_with.end(), who.name) != shared_with.end();
    return shared || named ? Relation::kShared : Relation::kOther;
  }
};

/// Whose is what a holder (Caller::holder()) has: of "user:NAME" that of NAME, else the admins'.
inline std::string owner_of_holder(const std::string& holder) {
  constexpr std::string_view kUser = "user:";
  return holder.starts_with(kUser) ? holder.substr(kUser.size()) : std::string();
}

/// Which objects of a list are told.
using IsShown = std::function<bool(const Ownership& ownership)>;
/// One's own and what is shared; to `looks_at_all`, and to an admin that asks for `all`,
/// everybody's (null).
inline IsShown shown_to(const Identity& who, bool all, bool looks_at_all) {
  if ((who.role == Role::kViewer && looks_at_all) || (who.is_admin() && all)) return nullptr;
  return [who](const Ownership& ownership) { return ownership.to(who) != Relation::kOther; };
}

/// Of a message that has `owner` and `shared_with`, and `shared` if objects of its kind can be
/// shared with everybody.
template <typename Message>
Ownership ownership_of(const Message& message) {
  Ownership ownership;
  ownership.owner = message.owner();
  if constexpr (requires { message.shared(); }) ownership.shared = message.shared();
  ownership.shared_with.assign(message.shared_with().begin(), message.shared_with().end());
  return ownership;
}

}  // namespace meshloom::control
