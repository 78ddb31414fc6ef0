// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/daemon_address.h"

#include <fmt/format.h>

#include "daemon/base/host_identity.h"
#include "daemon/launch/started_daemons.h"
#include "kernels/base/error.h"

namespace meshloom::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultAddress = "127.0.0.1:7420";

/// A record that is damaged is for `up` and `down` to tell.
std::optional<launch::FoundDaemon> look_at(const fs::path& state_dir) {
  try {
    return launch::find_on(state_dir);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string why_none_on(const fs::path& state_dir,
                        const std::optional<launch::FoundDaemon>& found) {
  const std::string folder = state_dir.string();
  if (launch::belongs_to_another(state_dir))
    return fmt::format("state dir {} belongs to another account", folder);
  if (!found) return fmt::format("no daemon runs on state dir {}", folder);
  const std::string log = found->record ? "; its log is " + found->record->log.string() : "";
  if (found->runs)
    return fmt::format("the daemon on state dir {} does not serve yet{}", folder, log);
  if (found->record && found->record->launcher.host != base::host_name())
    return fmt::format(
        "the daemon on state dir {} was started on host {} and is not seen from here{}", folder,
        found->record->launcher.host, log);
  return fmt::format("the daemon on state dir {} has ended{}", folder, log);
}

}  // namespace

bool is_state_dir_named(const AskedDaemon& asked, const base::Environment& environment) {
  return !asked.state_dir.empty() || environment.state_dir;
}

fs::path state_dir_of(const AskedDaemon& asked, const base::Environment& environment) {
  const fs::path named =
      asked.state_dir.empty() ? environment.state_dir.value_or("meshloom-state") : asked.state_dir;
  return launch::normal_folder(named);
}

DaemonAddress find_address(const AskedDaemon& asked, const base::Environment& environment) {
  if (!asked.address.empty()) return {asked.address, "", false};
  if (asked.state_dir.empty() && environment.address) return {*environment.address, "", false};
  const fs::path state_dir = state_dir_of(asked, environment);
  const auto found = look_at(state_dir);
  if (found && !found->address.empty()) return {found->address, "", false};
  if (is_state_dir_named(asked, environment) || (found && found->runs))
    return {kNoAddress, why_none_on(state_dir, found), true};
  for (const launch::FoundDaemon& daemon : launch::running())
    if (!daemon.address.empty()) return {daemon.address, "", false};
  return {kDefaultAddress, found ? why_none_on(state_dir, found) : "", false};
}

}  // namespace meshloom::cli
