// SPDX-License-Identifier: Apache-2.0
// What is kept of a daemon that was started in the background: which processes it is, and where.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace meshloom::launch {

/// ProcessIdentity names one process of one host. Numbers of processes are used again: with the
/// time of its start since the boot of the host, a number means one process alone.
struct ProcessIdentity {
  pid_t pid = 0;
  std::uint64_t start_time = 0;  ///< in ticks since boot
  std::string boot;              ///< of the kernel: another one after each boot
  std::string host;              ///< base::host_name() of its host
};

/// Returns who a process of this host is. Throws IoError if no process of that number runs.
ProcessIdentity identify(pid_t pid);
/// Returns whether it belongs to this boot of this host's kernel; else it has ended, or cannot be
/// seen.
bool same_boot(const ProcessIdentity& process);
/// Returns whether it still runs on this host.
bool runs(const ProcessIdentity& process);

/// Returns the one spelling by which a state dir is known: absolute, without dots and a slash at
/// its end.
std::filesystem::path normal_folder(const std::filesystem::path& folder);

/// A LaunchRecord lies in STATE_DIR/launch.json while the daemon runs; it stays there if the daemon
/// was killed.
struct LaunchRecord {
  std::filesystem::path state_dir;  ///< absolute
  ProcessIdentity launcher;         ///< mpirun, which leads the session of all ranks of its host
  int ranks = 0;
  std::filesystem::path log;  ///< what mpirun and the ranks print
};

/// Returns the record; nothing if `state_dir` has none. Throws FailedPrecondition
/// (LAUNCH_RECORD_DAMAGED) for a file that is none.
std::optional<LaunchRecord> read_record(const std::filesystem::path& state_dir);
/// Writes it whole or not at all. Throws as base::replace_file().
void write_record(const LaunchRecord& record);
/// Removes the record, unless another launch has written its own meanwhile. Returns whether it did.
bool remove_record(const LaunchRecord& record);

/// Returns the address of a daemon on this folder, as it was written; empty if there is none.
std::string written_address(const std::filesystem::path& state_dir);

/// Returns whether a folder is this account's own: what lies in another's may be a trap.
bool is_own(const std::filesystem::path& folder);
/// Returns whether a folder is there that belongs to another account.
bool belongs_to_another(const std::filesystem::path& folder);

}  // namespace meshloom::launch
