// SPDX-License-Identifier: Apache-2.0
// Asks meshloomd itself whether it could start with its settings, before mpirun is started.
#pragma once

#include <string>

#include "daemon/launch/launch_command.h"

namespace meshloom::launch {

/// meshloomd makes this of its flags, its environment and its config file (meshloomd --check).
struct StartCheck {
  std::filesystem::path state_dir;  ///< absolute
  bool listen_given = false;        ///< The user names the address; else it is the default.
  std::string address_problem;      ///< why nobody can listen on it; empty: one can
};

/// Asks options.meshloomd about options.flags. Throws what keeps it from starting, in its own
/// words: InvalidArgument for settings that are wrong, else FailedPrecondition. Throws
/// DeadlineExceeded if it does not end, and IoError if it cannot be executed.
StartCheck check_start(const LaunchOptions& options);

}  // namespace meshloom::launch
