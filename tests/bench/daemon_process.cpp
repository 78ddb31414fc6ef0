// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/daemon_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>
#include <vector>

#include "kernels/base/error.h"
#include "tests/bench/bench.h"

namespace meshloom::bench {
namespace {

namespace fs = std::filesystem;

int free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw IoError("no free port");
  ::close(listener);
  return ntohs(address.sin_port);
}

/// Starts a program in a process group of its own with its output in `log`.
pid_t start(const std::vector<std::string>& command, const fs::path& log) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::setpgid(0, 0);
  const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  ::dup2(file, 1);
  ::dup2(file, 2);
  std::vector<char*> arguments;
  for (const std::string& part : command) arguments.push_back(const_cast<char*>(part.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

int wait_for(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::vector<std::string> daemon_command(const DaemonProcess::Options& options,
                                        const DaemonProcess& daemon) {
  std::vector<std::string> command = {"mpirun",
                                      "--oversubscribe",
                                      "--bind-to",
                                      "none",
                                      "-n",
                                      std::to_string(options.ranks),
                                      options.daemon,
                                      "--listen",
                                      daemon.address(),
                                      "--state-dir",
                                      daemon.state_dir().string(),
                                      "--data-dir",
                                      daemon.data_dir().string()};
  if (options.threads > 0)
    command.insert(command.end(), {"--threads", std::to_string(options.threads)});
  return command;
}

}  // namespace

DaemonProcess::DaemonProcess(const Options& options)
    : options_(options), address_("127.0.0.1:" + std::to_string(free_port())) {
  if (::geteuid() == 0) {
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  const fs::path log = folder_.path() / "log.txt";
  fs::create_directories(data_dir());
  const auto begin = Clock::now();
  process_ = start(daemon_command(options_, *this), log);
  while (wait_for(start({options_.client, "status", "--address", address_}, "/dev/null")) != 0) {
    if (seconds_since(begin) > 30.0) {
      ::kill(-process_, SIGKILL);
      wait_for(process_);
      std::ifstream file(log);
      throw DeadlineExceeded(
          "the daemon did not serve within 30 s:\n" +
          std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

DaemonProcess::~DaemonProcess() {
  wait_for(start({options_.client, "shutdown", "--address", address_}, "/dev/null"));
  wait_for(process_);
}

}  // namespace meshloom::bench
