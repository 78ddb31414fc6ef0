// SPDX-License-Identifier: Apache-2.0
// Identity: who was proven to make a call, and what they may do.
#pragma once

#include <string>
#include <utility>

namespace meshloom::control {

/// Each role may do what those before it may, on its own objects; an admin on everybody's.
enum class Role {
  kNone,       ///< nothing but ask for the health
  kViewer,     ///< looks
  kSubmitter,  ///< has objects of its own
  kAdmin,
};

/// A value. Two identities with one name are one owner, however each was proven.
struct Identity {
  std::string name;  ///< empty: nobody was proven
  Role role = Role::kNone;

  /// Whoever has the daemon's own account, or reaches a daemon that was started with --insecure.
  static Identity admin() { return {"admin", Role::kAdmin}; }
  bool is_admin() const { return role == Role::kAdmin; }
};

}  // namespace meshloom::control
