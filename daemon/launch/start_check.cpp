// SPDX-License-Identifier: Apache-2.0
#include "daemon/launch/start_check.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>

#include "daemon/base/system_message.h"
#include "daemon/base/unique_fd.h"
#include "daemon/base/utf8.h"
#include "daemon/launch/launched_processes.h"
#include "kernels/base/error.h"

extern char** environ;

namespace meshloom::launch {
namespace {

constexpr std::chrono::seconds kPatience{30};  // a data dir may be on a file system that is slow
constexpr std::size_t kMostOutput = 64 << 10;
constexpr int kWrongUsage = 2;

/// A file without a name, so that no output is too long for a pipe.
base::UniqueFd make_output() {
  base::UniqueFd fd(::memfd_create("meshloomd-check", MFD_CLOEXEC));
  if (!fd) throw IoError(fmt::format("no memory file: {}", base::system_message(errno)));
  return fd;
}

std::string text_of(const base::UniqueFd& fd) {
  std::string text(kMostOutput, '\0');
  const ssize_t size = ::pread(fd.get(), text.data(), text.size(), 0);
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

pid_t spawn(std::vector<std::string> arguments, int output, int errors) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    throw IoError(
        fmt::format("{} cannot be executed: {}", arguments[0], base::system_message(error)));
  return pid;
}

/// Where this program was started with SIGCHLD ignored, the kernel forgets how a child has ended.
/// While an object lives, it does not.
class KeptChildren {
 public:
  KeptChildren() {
    struct sigaction kept {};
    kept.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, nullptr, &before_);
    if (before_.sa_handler == SIG_IGN) ::sigaction(SIGCHLD, &kept, nullptr);
  }
  ~KeptChildren() { ::sigaction(SIGCHLD, &before_, nullptr); }
  KeptChildren(const KeptChildren&) = delete;
  KeptChildren& operator=(const KeptChildren&) = delete;

 private:
  struct sigaction before_ {};
};

/// The exit code, 128 + n after a signal.
int wait_for(pid_t pid) {
  int status = 0;
  pid_t ended = 0;
  if (!wait_until(kPatience, [&] { return (ended = ::waitpid(pid, &status, WNOHANG)) != 0; })) {
    // It is not waited for: what hangs in a file system does not end by a signal.
    ::kill(pid, SIGKILL);
    throw DeadlineExceeded(fmt::format(
        "meshloomd --check did not end within {} s: does a file system hang?", kPatience.count()));
  }
  if (ended < 0)
    throw IoError(fmt::format("how meshloomd --check has ended is not known: {}",
                              base::system_message(errno)));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// The first line, without the program's name.
std::string cause_in(const std::string& errors) {
  std::string line = errors.substr(0, errors.find('\n'));
  if (const std::string name = "meshloomd: "; line.starts_with(name)) line.erase(0, name.size());
  return base::printable_text(line);
}

}  // namespace

StartCheck check_start(const LaunchOptions& options) {
  std::vector<std::string> arguments{options.meshloomd.string()};
  arguments.insert(arguments.end(), options.flags.begin(), options.flags.end());
  arguments.emplace_back("--check");
  const base::UniqueFd output = make_output(), errors = make_output();
  const KeptChildren kept;
  const int code = wait_for(spawn(std::move(arguments), output.get(), errors.get()));
  if (code != 0) {
    const std::string cause = cause_in(text_of(errors));
    const std::string told =
        cause.empty() ? fmt::format("meshloomd --check ended with code {}", code) : cause;
    if (code == kWrongUsage) throw InvalidArgument(told);
    throw FailedPrecondition(told);
  }
  const auto json = nlohmann::json::parse(text_of(output), nullptr, false);
  if (!json.is_object())
    throw InvalidArgument(
        "these flags make meshloomd print a text and start nothing: leave them out");
  StartCheck check;
  check.state_dir = normal_folder(json.at("state_dir").get<std::string>());
  check.listen_given = json.at("listen_given").get<bool>();
  check.address_problem = json.at("address_problem").get<std::string>();
  return check;
}

}  // namespace meshloom::launch
