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
  /// Whose the objects are that it makes. The admins are one owner, which has no name: whatever one
  /// of them made is each one's, as is what has no owner.
  std::string owner() const { return is_admin() ? std::string() : name; }
};

/// "viewer", "submitter", "admin"; "nobody".
inline const char* role_name(Role role) {
  switch (role) {
    case Role::kNone: return "nobody";
    case Role::kViewer: return "viewer";
    case Role::kSubmitter: return "submitter";
    case Role::kAdmin: return "admin";
  }
  return "nobody";
}

}  // namespace meshloom::control
