// SPDX-License-Identifier: Apache-2.0
#include "daemon/launch/launch_record.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "daemon/base/files.h"
#include "daemon/base/host_identity.h"
#include "daemon/base/input_file.h"
#include "daemon/base/process_stat.h"
#include "daemon/base/strict_json.h"
#include "kernels/base/error.h"

namespace meshloom::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestRecord = 64 << 10;

fs::path record_file(const fs::path& state_dir) { return state_dir / "launch.json"; }

LaunchRecord parse_record(const fs::path& state_dir, const std::string& text) {
  const nlohmann::json json = base::parse_strict_json(text, {.depth = 4, .values = 100});
  LaunchRecord record;
  record.state_dir = state_dir;
  record.launcher = {json.at("pid").get<pid_t>(), json.at("start_time").get<std::uint64_t>(),
                     json.at("boot").get<std::string>(), json.at("host").get<std::string>()};
  record.ranks = json.at("ranks").get<int>();
  record.log = json.at("log").get<std::string>();
  check(record.launcher.pid > 1, "pid is {}, expected 2 or more", record.launcher.pid);
  return record;
}

[[noreturn]] void throw_damaged(const fs::path& file, const char* why) {
  throw FailedPrecondition(
      fmt::format("{} is damaged ({}): remove it if no daemon runs on that folder",
                  base::shown(file), why),
      "LAUNCH_RECORD_DAMAGED");
}

}  // namespace

ProcessIdentity identify(pid_t pid) {
  const auto stat = base::read_process_stat(pid);
  if (!stat) throw IoError(fmt::format("process {} has ended", pid));
  return {pid, stat->start_time, base::boot_id(), base::host_name()};
}

bool same_boot(const ProcessIdentity& process) {
  return process.host == base::host_name() && process.boot == base::boot_id();
}

bool runs(const ProcessIdentity& process) {
  if (!same_boot(process)) return false;
  const auto stat = base::read_process_stat(process.pid);
  return stat && !stat->has_ended() && stat->start_time == process.start_time;
}

fs::path normal_folder(const fs::path& folder) {
  const fs::path normal = fs::absolute(folder).lexically_normal();
  return normal.has_filename() || !normal.has_relative_path() ? normal : normal.parent_path();
}

std::optional<LaunchRecord> read_record(const fs::path& state_dir) {
  const fs::path file = record_file(state_dir);
  try {
    return parse_record(state_dir, base::InputFile(file).read_text(kLongestRecord));
  } catch (const NotFound&) {
    return std::nullopt;
  } catch (const nlohmann::json::exception& wrong) {
    throw_damaged(file, wrong.what());
  } catch (const InvalidArgument& wrong) {
    throw_damaged(file, wrong.what());
  }
}

void write_record(const LaunchRecord& record) {
  const nlohmann::ordered_json json = {
      {"pid", record.launcher.pid},   {"start_time", record.launcher.start_time},
      {"boot", record.launcher.boot}, {"host", record.launcher.host},
      {"ranks", record.ranks},        {"log", record.log.string()}};
  base::replace_file(record_file(record.state_dir), json.dump(2) + "\n");
}

bool remove_record(const LaunchRecord& record) {
  try {
    const auto now = read_record(record.state_dir);
    if (!now || now->launcher.pid != record.launcher.pid ||
        now->launcher.start_time != record.launcher.start_time)
      return false;
  } catch (const FailedPrecondition&) {
    return false;  // It is not this record any more.
  }
  std::error_code ignored;
  return fs::remove(record_file(record.state_dir), ignored);
}

std::string written_address(const fs::path& state_dir) {
  constexpr std::streamsize kLongest = 300;
  char line[kLongest] = "";
  std::ifstream(state_dir / "address").getline(line, kLongest);
  return line;
}

bool is_own(const fs::path& folder) {
  struct stat found {};
  return ::stat(folder.c_str(), &found) == 0 && found.st_uid == ::geteuid();
}

bool belongs_to_another(const fs::path& folder) {
  struct stat found {};
  return ::stat(folder.c_str(), &found) == 0 && found.st_uid != ::geteuid();
}

}  // namespace meshloom::launch
