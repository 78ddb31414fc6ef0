// SPDX-License-Identifier: Apache-2.0
// LaunchKey: by which the ranks of one launch know each other over a network.
#pragma once

#include <string>

namespace meshloom::control {

/// A key and a certificate of its own that both ends of a connection have, and take of each other.
/// Empty: ranks of one host, which need none.
struct LaunchKey {
  std::string certificate{};  ///< PEM, for the name kLaunchName
  std::string key{};          ///< PEM

  bool empty() const { return key.empty(); }
};

inline constexpr const char* kLaunchName = "meshloom-launch";

/// A fresh one, which lasts longer than any launch. Throws InternalError where OpenSSL makes none.
LaunchKey make_launch_key();

}  // namespace meshloom::control
