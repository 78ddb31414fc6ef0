// SPDX-License-Identifier: Apache-2.0
// How mpirun is called so that it starts the ranks of a daemon on this host.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace meshloom::launch {

struct LaunchOptions {
  int ranks = 1;
  std::filesystem::path state_dir;  ///< absolute
  /// They are meshloomd's, as its command line has them; --state-dir and --world-size are added.
  std::vector<std::string> flags;
  std::filesystem::path mpirun, meshloomd;  ///< programs
};

/// Returns the value of an environment variable if it is set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;
EnvironmentLookup process_environment();

/// Returns mpirun with its arguments, the program first.
std::vector<std::string> launch_arguments(const LaunchOptions& options);

/// Returns what Open MPI 4 (OMPI_) and 5 (PRTE_) need in their environment, without what is set
/// already:
///   - both refuse root unless it confirms that it means it;
///   - Open MPI 4 kills all ranks a second after it was asked to end them or one has died, too soon
///     for the others to find and tell the cause. Eight seconds do. Open MPI 5 kills them after
///     half a second, which nothing lengthens.
/// How OpenMP's threads wait the daemon arranges for itself (base/quiet_threads.h).
std::map<std::string, std::string> launch_variables(bool as_root, const EnvironmentLookup& lookup);

/// Returns the first executable file of that name in the folders of PATH; nothing if there is none.
std::optional<std::filesystem::path> find_program(const std::string& name,
                                                  const std::string& path_variable);

/// Finds the two programs that a launch needs. meshloomd is looked for beside this program first.
/// Throws NotFound (PROGRAM_MISSING) saying how to get what is missing.
void find_programs(LaunchOptions* options);

}  // namespace meshloom::launch
