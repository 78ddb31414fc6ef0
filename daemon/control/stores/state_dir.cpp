// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/state_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "daemon/base/files.h"
#include "daemon/base/system_message.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

void make_private_folder(const fs::path& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return;
  fs::create_directories(folder, error);
  if (error)
    throw IoError(fmt::format("state dir {} cannot be made: {}", folder.string(), error.message()));
  fs::permissions(folder, fs::perms::owner_all, error);
}

/// What other users could read or write so far.
void close_to_others(const fs::path& root) {
  constexpr fs::perms kOthers = fs::perms::group_all | fs::perms::others_all;
  std::error_code error;
  if ((fs::status(root, error).permissions() & kOthers) == fs::perms::none) return;
  std::vector<fs::path> all{root};
  for (fs::recursive_directory_iterator entry(root, error), end; !error && entry != end;
       entry.increment(error))
    if (std::error_code unread; !entry->is_symlink(unread)) all.push_back(entry->path());
  int refused = error ? 1 : 0;
  for (const fs::path& path : all) {
    std::error_code failed;
    fs::permissions(path, kOthers, fs::perm_options::remove, failed);
    if (failed) ++refused;
  }
  if (refused == 0)
    spdlog::warn("state dir {} was open to other users: it is private now", root.string());
  else
    spdlog::error("state dir {} is open to other users, and {} of {} entries cannot be closed",
                  root.string(), refused, all.size());
}

/// 0, or why the file system does not lock it. Throws if another process has it.
int lock_or_refuse(int fd, const fs::path& root, const StateDir::LockOptions& options) {
  const int error = options.lock(fd);
  if (error != EWOULDBLOCK) return error;
  const std::string owner = lock_owner(root / "lock");
  throw FailedPrecondition(
      fmt::format("state dir {} is in use by another meshloomd ({})", root.string(), owner),
      "STATE_DIR_LOCKED", {{"owner", owner}});
}

fs::path logs_folder(const fs::path& state_dir) {
  make_private_folder(state_dir);
  const fs::path folder = state_dir / "logs";
  std::error_code error;
  fs::create_directories(folder, error);
  return folder;
}

}  // namespace

int StateDir::flock_now(int fd) { return ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno; }

StateDir::StateDir(fs::path root) : StateDir(std::move(root), LockOptions()) {}

StateDir::StateDir(fs::path root, const LockOptions& options)
    : root_(fs::absolute(std::move(root))) {
  make_private_folder(root_);
  folder_ = base::UniqueFd(::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_) base::throw_input_error("cannot open state dir", root_, errno);
  lock_or_refuse(folder_.get(), root_, options);  // some file systems lock files alone
  const fs::path path = root_ / "lock";
  lock_ = base::UniqueFd(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!lock_) base::throw_input_error("cannot open", path, errno);
  if (const int error = lock_or_refuse(lock_.get(), root_, options); error == 0) {
    const std::string pid = std::to_string(::getpid());
    if (::ftruncate(lock_.get(), 0) != 0 || ::pwrite(lock_.get(), pid.data(), pid.size(), 0) < 0)
      base::throw_input_error("cannot write", path, errno);
  } else {
    spdlog::warn(
        "the file system of state dir {} has no locks ({}): a second meshloomd is found by what "
        "the first one writes to {} every {} ms",
        root_.string(), base::system_message(error), path.string(), options.times.beat.count());
    beat_ = std::make_unique<LockBeat>(path, options.times, options.observer);
  }
  close_to_others(root_);
  fs::remove(root_ / "address");
  fs::create_directories(jobs());
}

StateDir::~StateDir() {
  std::error_code ignored;
  if (published_) fs::remove(root_ / "address", ignored);
}

void StateDir::check_in_place() const {
  struct stat locked {
  }, found{};
  const bool same = ::fstat(folder_.get(), &locked) == 0 && ::stat(root_.c_str(), &found) == 0 &&
                    locked.st_dev == found.st_dev && locked.st_ino == found.st_ino;
  if (same && ::access(journal().c_str(), F_OK) == 0) return;
  throw FailedPrecondition(
      fmt::format("state dir {} was removed or replaced while this meshloomd runs: a job could "
                  "not be kept; stop the daemon and start it again",
                  root_.string()),
      "STATE_DIR_GONE", {{"state_dir", root_.string()}});
}

void StateDir::publish_address(const std::string& address) {
  base::replace_file(root_ / "address", address + "\n", 0644);
  published_ = true;
}

std::string saved_state_folder(const std::string& run, const std::string& state, std::int64_t epoch,
                               std::int64_t seq) {
  return fmt::format("runs/{}/states/{}-{}-{}", run, state, epoch, seq);
}

std::string saved_weights_folder(const std::string& run, const std::string& weights) {
  return fmt::format("runs/{}/weights/{}", run, weights);
}

fs::path log_file(const fs::path& state_dir, int rank) {
  return logs_folder(state_dir) / fmt::format("rank-{}.log", rank);
}

fs::path flight_file(const fs::path& state_dir, int rank) {
  return logs_folder(state_dir) / fmt::format("flight-rank-{}.txt", rank);
}

}  // namespace meshloom::control
