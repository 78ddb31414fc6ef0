// SPDX-License-Identifier: Apache-2.0
#include "daemon/launch/state_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include "daemon/base/unique_fd.h"
#include "daemon/launch/launched_processes.h"

namespace meshloom::launch {
namespace {

namespace fs = std::filesystem;

fs::path lock_file(const fs::path& state_dir) { return state_dir / "lock"; }

StateLock try_lock(const fs::path& path, int flags) {
  const base::UniqueFd fd(::open(path.c_str(), flags | O_RDONLY | O_CLOEXEC));
  if (!fd) return errno == ENOENT ? StateLock::kFree : StateLock::kUnknown;
  if (::flock(fd.get(), LOCK_SH | LOCK_NB) == 0) return StateLock::kFree;
  return errno == EWOULDBLOCK ? StateLock::kTaken : StateLock::kUnknown;
}

StateLock try_once(const fs::path& state_dir) {
  // The folder stays locked where the file is removed, and some file systems lock files alone.
  if (try_lock(state_dir, O_DIRECTORY) == StateLock::kTaken) return StateLock::kTaken;
  return try_lock(lock_file(state_dir), O_NOFOLLOW | O_NONBLOCK);
}

bool has_open(pid_t pid, const fs::path& file) {
  struct stat wanted {};
  if (::stat(file.c_str(), &wanted) != 0) return false;
  std::error_code error;
  for (fs::directory_iterator entry("/proc/" + std::to_string(pid) + "/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    struct stat found {};
    if (::stat(entry->path().c_str(), &found) == 0 && found.st_dev == wanted.st_dev &&
        found.st_ino == wanted.st_ino)
      return true;
  }
  return false;
}

}  // namespace

StateLock try_state_lock(const fs::path& state_dir, std::chrono::milliseconds patience) {
  StateLock lock = StateLock::kUnknown;
  wait_until(patience, [&] { return (lock = try_once(state_dir)) != StateLock::kTaken; });
  return lock;
}

bool is_locked_here(const fs::path& state_dir) {
  pid_t pid = 0;
  std::ifstream(lock_file(state_dir)) >> pid;
  return pid > 0 && has_open(pid, lock_file(state_dir));
}

}  // namespace meshloom::launch
