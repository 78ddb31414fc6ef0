// SPDX-License-Identifier: Apache-2.0
#include "daemon/launch/launch_command.h"

#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "kernels/base/error.h"

namespace meshloom::launch {
namespace {

namespace fs = std::filesystem;

bool is_program(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

EnvironmentLookup process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value ? std::optional<std::string>(value) : std::nullopt;
  };
}

std::vector<std::string> launch_arguments(const LaunchOptions& options) {
  // The ranks share the cores themselves: mpirun would bind each to one core, and refuse more ranks
  // than there are cores.
  std::vector<std::string> arguments{options.mpirun.string(),
                                     "-n",
                                     std::to_string(options.ranks),
                                     "--bind-to",
                                     "none",
                                     "--oversubscribe",
                                     options.meshloomd.string(),
                                     "--world-size",
                                     std::to_string(options.ranks),
                                     "--state-dir",
                                     options.state_dir.string()};
  arguments.insert(arguments.end(), options.flags.begin(), options.flags.end());
  return arguments;
}

std::map<std::string, std::string> launch_variables(bool as_root, const EnvironmentLookup& lookup) {
  std::map<std::string, std::string> wanted{{"OMPI_MCA_odls_base_sigkill_timeout", "8"}};
  if (as_root)
    for (const char* program : {"OMPI", "PRTE"})
      for (const char* variable : {"_ALLOW_RUN_AS_ROOT", "_ALLOW_RUN_AS_ROOT_CONFIRM"})
        wanted[std::string(program) + variable] = "1";
  std::erase_if(wanted, [&](const auto& item) { return lookup(item.first).has_value(); });
  return wanted;
}

std::optional<fs::path> find_program(const std::string& name, const std::string& path_variable) {
  std::istringstream folders(path_variable);
  for (std::string folder; std::getline(folders, folder, ':');) {
    // An empty entry means the working folder.
    const fs::path program = fs::absolute(fs::path(folder) / name);
    if (is_program(program)) return program;
  }
  return std::nullopt;
}

void find_programs(LaunchOptions* options) {
  const std::string path = process_environment()("PATH").value_or("");
  const auto mpirun = find_program("mpirun", path);
  if (!mpirun)
    throw NotFound(
        "mpirun is not on PATH: install Open MPI (on Debian: apt-get install openmpi-bin)",
        "PROGRAM_MISSING", {{"program", "mpirun"}});
  std::error_code error;
  const fs::path beside = fs::read_symlink("/proc/self/exe", error).parent_path() / "meshloomd";
  const auto meshloomd =
      !error && is_program(beside) ? std::optional(beside) : find_program("meshloomd", path);
  if (!meshloomd)
    throw NotFound(
        fmt::format(
            "meshloomd is neither in {}, beside this program, nor on PATH: build or install "
            "it",
            beside.parent_path().string()),
        "PROGRAM_MISSING", {{"program", "meshloomd"}});
  options->mpirun = *mpirun;
  options->meshloomd = *meshloomd;
}

}  // namespace meshloom::launch
