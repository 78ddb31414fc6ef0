// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/hooks/hook_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <span>
#include <string_view>

#include "daemon/base/files.h"
#include "daemon/base/unique_fd.h"
#include "daemon/base/utf8.h"

extern char** environ;

namespace meshloom::control {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostOutput = 16 << 10;
constexpr int kLookMilliseconds = 20;

base::UniqueFd file_with(const std::string& text) {
  base::UniqueFd file(::memfd_create("event", MFD_CLOEXEC));
  if (!file) base::throw_io_error("cannot make", "the input of a hook", errno);
  base::write_all(file.get(), std::as_bytes(std::span(text)), "the input of a hook");
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

/// A rank of the daemon's world is what a program with these would be.
bool is_of_launcher(std::string_view variable) {
  for (const char* prefix : {"OMPI_", "PMIX_", "PMI_", "PRTE_"})
    if (variable.starts_with(prefix)) return true;
  return false;
}

std::vector<std::string> environment_of(const HookCall& call) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable; ++variable)
    if (!is_of_launcher(*variable)) variables.emplace_back(*variable);
  for (const auto& [name, value] : call.variables)
    variables.push_back(name + "=" + base::printable_text(value, 4096, /*keep_newlines=*/false));
  return variables;
}

class Actions {
 public:
  Actions() { ::posix_spawn_file_actions_init(&actions_); }
  ~Actions() { ::posix_spawn_file_actions_destroy(&actions_); }
  Actions(const Actions&) = delete;
  Actions& operator=(const Actions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

class Attributes {
 public:
  Attributes() {
    ::posix_spawnattr_init(&attributes_);
    ::posix_spawnattr_setflags(&attributes_,
                               POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    sigset_t all, none;
    ::sigfillset(&all);
    ::sigemptyset(&none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
  }
  ~Attributes() { ::posix_spawnattr_destroy(&attributes_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

::pid_t start(const HookCall& call, int input, int output) {
  Actions actions;
  ::posix_spawn_file_actions_adddup2(actions.get(), input, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(actions.get(), output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(actions.get(), output, STDERR_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(actions.get(), STDERR_FILENO + 1);
  const Attributes attributes;
  std::vector<std::string> variables = environment_of(call);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  std::string shell = "/bin/sh", option = "-c", command = call.command;
  std::array<char*, 4> arguments{shell.data(), option.data(), command.data(), nullptr};
  ::pid_t pid = 0;
  const int error = ::posix_spawn(&pid, shell.c_str(), actions.get(), attributes.get(),
                                  arguments.data(), environment.data());
  if (error != 0) base::throw_io_error("cannot start", shell, error);
  return pid;
}

/// Takes what is there; keeps the first of it.
void read_output(int fd, std::string* output) {
  std::array<char, 4096> piece;
  for (int i = 0; i < 64; ++i) {
    const ::ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got <= 0) return;
    const std::size_t room = kMostOutput - std::min(kMostOutput, output->size());
    output->append(piece.data(), std::min(room, static_cast<std::size_t>(got)));
  }
}

/// Until somebody waits for it, its number is nobody else's, and neither is that of its session.
bool has_ended(::pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<::id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid != 0;
}

std::string how_it_ended(int status) {
  if (WIFEXITED(status)) return fmt::format("exit code {}", WEXITSTATUS(status));
  return fmt::format("signal {}", WTERMSIG(status));
}

}  // namespace

HookEnd run_hook(const HookCall& call, const std::atomic<bool>& stop) {
  const base::UniqueFd input = file_with(call.input);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    base::throw_io_error("cannot make", "a pipe for a hook", errno);
  const base::UniqueFd reading(ends[0]);
  base::UniqueFd writing(ends[1]);
  // A program expects that its output waits, and both ends have flags of their own.
  ::fcntl(writing.get(), F_SETFL, 0);
  const auto begin = Clock::now();
  const ::pid_t pid = start(call, input.get(), writing.get());
  writing = base::UniqueFd();
  HookEnd end;
  std::optional<std::string> killed;
  while (!has_ended(pid)) {
    ::pollfd look{reading.get(), POLLIN, 0};
    ::poll(&look, 1, kLookMilliseconds);
    // Without a writer the pipe is always ready.
    if ((look.revents & POLLIN) == 0 && (look.revents & POLLHUP) != 0)
      ::poll(nullptr, 0, kLookMilliseconds);
    read_output(reading.get(), &end.output);
    const bool late = Clock::now() - begin >= call.limit;
    if (killed || (!late && !stop)) continue;
    killed =
        late ? fmt::format("killed after {:g} s", std::chrono::duration<double>(call.limit).count())
             : std::string("killed, since the daemon stops");
    ::kill(-pid, SIGKILL);
  }
  ::kill(-pid, SIGKILL);  // what it has left behind
  read_output(reading.get(), &end.output);
  int status = 0;
  const bool is_known = ::waitpid(pid, &status, 0) == pid;
  end.ok = !killed && is_known && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  end.what = killed ? *killed : is_known ? how_it_ended(status) : "an end that is not known";
  end.output = base::printable_text(end.output);
  return end;
}

}  // namespace meshloom::control
