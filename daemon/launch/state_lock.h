// SPDX-License-Identifier: Apache-2.0
// The lock of a state dir, which rank 0 of its daemon holds for as long as it runs.
#pragma once

#include <chrono>
#include <filesystem>

namespace meshloom::launch {

enum class StateLock {
  kFree,
  kTaken,    ///< by a daemon, which may be one of another host or container
  kUnknown,  ///< The file system does not say.
};

/// Tries the locks that rank 0 takes: that of the folder, and that of its file "lock". What it gets
/// is shared with others who try, and given back at once; a daemon that takes its lock at that very
/// moment is refused. What is taken is tried again until `patience` is over: a process that was
/// killed has its lock for a moment longer.
StateLock try_state_lock(const std::filesystem::path& state_dir,
                         std::chrono::milliseconds patience = std::chrono::seconds(1));

/// Returns whether the process that has written its number into the lock file still runs where this
/// one sees it. Numbers are used again: it is that process if it has the file open.
bool is_locked_here(const std::filesystem::path& state_dir);

}  // namespace meshloom::launch
