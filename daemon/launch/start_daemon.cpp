// SPDX-License-Identifier: Apache-2.0
#include "daemon/launch/start_daemon.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "daemon/base/files.h"
#include "daemon/base/system_message.h"
#include "daemon/launch/started_daemons.h"
#include "daemon/launch/state_lock.h"
#include "kernels/base/error.h"

extern char** environ;

namespace meshloom::launch {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

void make_private(const fs::path& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return;
  fs::create_directories(folder, error);
  if (error)
    throw IoError(
        fmt::format("state dir {} cannot be made: {}", base::shown(folder), error.message()));
  fs::permissions(folder, fs::perms::owner_all, error);
  if (error)
    throw IoError(fmt::format("state dir {} cannot be made private: {}", base::shown(folder),
                              error.message()));
}

fs::path fresh_log(const fs::path& state_dir) {
  const fs::path folder = state_dir / "logs";
  make_private(folder);
  const fs::path log = folder / "daemon.log";
  std::error_code ignored;
  fs::rename(log, fs::path(log.string() + ".1"), ignored);  // the first start has none
  return log;
}

/// Strings as exec takes them: they live as long as this object.
class Strings {
 public:
  explicit Strings(std::vector<std::string> texts) : texts_(std::move(texts)) {
    for (std::string& text : texts_) pointers_.push_back(text.data());
    pointers_.push_back(nullptr);
  }
  char* const* get() const { return pointers_.data(); }

 private:
  std::vector<std::string> texts_;
  std::vector<char*> pointers_;
};

std::vector<std::string> environment_of_launch() {
  std::vector<std::string> all;
  for (char** item = environ; *item != nullptr; ++item) all.emplace_back(*item);
  for (const auto& [name, value] : launch_variables(::geteuid() == 0, process_environment()))
    all.push_back(name + "=" + value);
  return all;
}

struct Pipe {
  base::UniqueFd read, write;
};

Pipe make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0)
    throw IoError(fmt::format("no pipe: {}", base::system_message(errno)));
  return {base::UniqueFd(fds[0]), base::UniqueFd(fds[1])};
}

/// What the child is made of. Between fork and exec it calls nothing that could wait for a lock of
/// a thread that it does not have.
struct Child {
  const char* program;
  char* const* arguments;
  char* const* environment;
  int input, log;
  int go;      ///< a byte comes once the record is written; its end: the parent has gone
  int failed;  ///< takes the error of exec
};

[[noreturn]] void become_launcher(const Child& child) {
  ::setsid();
  ::umask(077);
  ::dup2(child.input, STDIN_FILENO);
  ::dup2(child.log, STDOUT_FILENO);
  ::dup2(child.log, STDERR_FILENO);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) ::signal(signal, SIG_DFL);
  // What this program was started with, such as the lock of a script, is not the daemon's to keep.
  ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  char byte = 0;
  if (::read(child.go, &byte, 1) != 1) ::_exit(1);
  ::execve(child.program, child.arguments, child.environment);
  const int error = errno;
  (void)!::write(child.failed, &error, sizeof error);
  ::_exit(127);
}

base::UniqueFd open_or_throw(const fs::path& path, int flags) {
  base::UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, 0600));
  if (!fd) base::throw_io_error("cannot open", path, errno);
  return fd;
}

[[noreturn]] void refuse_beside(const FoundDaemon& daemon) {
  const std::string where =
      daemon.address.empty() ? "which does not serve yet" : "at " + daemon.address;
  if (!daemon.record)
    throw FailedPrecondition(
        fmt::format("a meshloomd that was started by hand runs on state dir {} already, {}; "
                    "meshloom shutdown ends it",
                    base::shown(daemon.state_dir), where),
        "DAEMON_RUNS");
  throw FailedPrecondition(
      fmt::format("meshloom up has started a daemon on state dir {} already, {} (mpirun has pid "
                  "{}); meshloom down ends it",
                  base::shown(daemon.state_dir), where, daemon.record->launcher.pid),
      "DAEMON_RUNS");
}

}  // namespace

LaunchTurn::LaunchTurn(const fs::path& state_dir) {
  make_private(state_dir);
  if (!is_own(state_dir))
    throw FailedPrecondition(
        fmt::format("state dir {} belongs to another account: name another folder with --state-dir",
                    base::shown(state_dir)),
        "STATE_DIR_NOT_OWN");
  const fs::path file = state_dir / "launch.lock";
  lock_ = open_or_throw(file, O_RDWR | O_CREAT | O_NOFOLLOW);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw FailedPrecondition(fmt::format("another meshloom up is starting a daemon on state dir {}",
                                         base::shown(state_dir)),
                             "DAEMON_RUNS");
  const auto daemon = find_on(state_dir);
  if (daemon && daemon->runs) refuse_beside(*daemon);
  if (try_state_lock(state_dir) == StateLock::kTaken)
    throw FailedPrecondition(
        fmt::format("state dir {} is in use by a meshloomd of another host or container",
                    base::shown(state_dir)),
        "DAEMON_RUNS");
}

LaunchRecord start_daemon(const LaunchOptions& options, const LaunchTurn&) {
  LaunchRecord record;
  record.state_dir = options.state_dir;
  record.ranks = options.ranks;
  record.log = fresh_log(options.state_dir);
  // That of a daemon that was killed would be taken for this one's.
  std::error_code ignored;
  fs::remove(options.state_dir / "address", ignored);

  const Strings arguments(launch_arguments(options)), environment(environment_of_launch());
  const std::string program = options.mpirun.string();
  const base::UniqueFd input = open_or_throw("/dev/null", O_RDONLY);
  const base::UniqueFd log = open_or_throw(record.log, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
  Pipe go = make_pipe(), failed = make_pipe();
  const pid_t pid = ::fork();
  if (pid < 0) throw IoError(fmt::format("no process: {}", base::system_message(errno)));
  if (pid == 0) {
    ::close(go.write.get());  // else it would wait for itself where the parent is killed
    become_launcher({program.c_str(), arguments.get(), environment.get(), input.get(), log.get(),
                     go.read.get(), failed.write.get()});
  }
  failed.write.reset();
  try {
    record.launcher = identify(pid);
    write_record(record);
  } catch (...) {
    go.write.reset();
    ::waitpid(pid, nullptr, 0);
    throw;
  }
  (void)!::write(go.write.get(), "g", 1);
  int error = 0;
  if (::read(failed.read.get(), &error, sizeof error) == sizeof error) {
    ::waitpid(pid, nullptr, 0);
    remove_record(record);
    throw IoError(fmt::format("{} cannot be executed: {}", program, base::system_message(error)));
  }
  return record;
}

StartEnd wait_until_serving(const LaunchRecord& record, const StartWait& wait) {
  const LaunchedProcesses processes(record);
  constexpr std::chrono::seconds kSlow{3};
  const auto begin = Clock::now();
  bool told = false;
  while (true) {
    if (wait.interrupted()) return StartEnd::kInterrupted;
    const std::string address = written_address(record.state_dir);
    if (!address.empty() && wait.serves(address)) return StartEnd::kServes;
    if (processes.ended()) return StartEnd::kEnded;
    if (Clock::now() - begin >= wait.patience) return StartEnd::kTooLate;
    if (!told && Clock::now() - begin >= kSlow) {
      told = true;
      wait.slow();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace meshloom::launch
