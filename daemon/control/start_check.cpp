// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/start_check.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "daemon/base/config.h"
#include "daemon/base/files.h"
#include "daemon/base/system_message.h"
#include "daemon/control/net/acceptor.h"
#include "daemon/control/services/client_access.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

std::string account_name(uid_t id) {
  const passwd* account = ::getpwuid(id);
  return account ? account->pw_name : std::to_string(id);
}

/// The nearest folder above, or itself, that is there.
fs::path existing_part(fs::path path) {
  std::error_code error;
  while (!fs::exists(path, error) && path.has_relative_path()) path = path.parent_path();
  return path;
}

void check_state_dir(const fs::path& folder) {
  const fs::path there = existing_part(folder);
  struct stat found {};
  if (::stat(there.c_str(), &found) != 0)
    base::throw_input_error("cannot look at state dir", there, errno);
  if (!S_ISDIR(found.st_mode))
    throw InvalidArgument(
        fmt::format("--state-dir {}: {} is no folder", base::shown(folder), base::shown(there)));
  if (there == folder && found.st_uid != ::geteuid())
    throw FailedPrecondition(
        fmt::format("state dir {} belongs to {}, and this is {}: name another folder with "
                    "--state-dir",
                    base::shown(folder), account_name(found.st_uid), account_name(::geteuid())),
        "STATE_DIR_NOT_OWN");
  if (::access(there.c_str(), W_OK | X_OK) != 0)
    throw FailedPrecondition(
        fmt::format("state dir {} cannot be {}: {}", base::shown(folder),
                    there == folder ? "written" : "made", base::system_message(errno)),
        "STATE_DIR_NOT_WRITABLE");
}

/// Returns why nobody can listen there; empty: one can.
std::string address_problem(const ListenAddress& listen) {
  try {
    const Acceptor acceptor(listen, 1, false);
    return "";
  } catch (const FailedPrecondition& error) {
    return error.what();
  }
}

/// By the command line or the config file.
bool is_listen_given(const ParsedDaemonOptions& parsed) {
  if (parsed.flags.listen) return true;
  return parsed.file.text &&
         !base::parse_daemon_config(*parsed.file.text, parsed.file.path).listen().empty();
}

}  // namespace

std::string check_start(const ParsedDaemonOptions& parsed) {
  const v1::DaemonConfig& config = parsed.options.config;
  if (!parsed.file.refusal.empty()) throw NotFound(parsed.file.refusal);
  check_data_dir(config);
  const ListenAddress listen = checked_listen(config);
  check_state_dir(config.state_dir());
  check_access_files(config);
  const nlohmann::ordered_json told = {{"state_dir", config.state_dir()},
                                       {"listen_given", is_listen_given(parsed)},
                                       {"address_problem", address_problem(listen)}};
  return told.dump() + "\n";
}

}  // namespace meshloom::control
