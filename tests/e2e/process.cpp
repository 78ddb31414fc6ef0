// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "daemon/base/process_stat.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

[[noreturn]] void exec_child(std::vector<char*> argv, const char* output, const char* errors) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int in = ::open("/dev/null", O_RDONLY);
  const int out = ::open(output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int err = *errors ? ::open(errors, O_WRONLY | O_CREAT | O_TRUNC, 0600) : out;
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

std::vector<pid_t> members_of(pid_t session) {
  std::vector<pid_t> members;
  for (const auto& item : fs::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(item.path().filename().c_str());
    if (pid <= 0) continue;
    const auto stat = base::read_process_stat(pid);
    if (stat && stat->session == session) members.push_back(pid);
  }
  return members;
}

}  // namespace

Process::Process(const Arguments& arguments, const fs::path& output, const fs::path& errors) {
  std::vector<char*> argv;
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::string out = output.string();
  const std::string err = errors.string();
  // Orphans of a killed mpirun come to this process and can be waited for.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) exec_child(argv, out.c_str(), err.c_str());
}

Process::~Process() {
  // Orphans of the session come to this process. The children of other sessions belong to their own
  // Process, which would never learn an exit code that was collected here.
  eventually(std::chrono::seconds(10), [&] {
    const bool ended = wait(std::chrono::milliseconds(0)).has_value();
    const std::vector<pid_t> left = members_of(pid_);
    for (const pid_t pid : left) {
      ::kill(pid, SIGKILL);
      if (pid != pid_) ::waitpid(pid, nullptr, WNOHANG);
    }
    return ended && left.empty();
  });
}

void Process::signal(int number) const {
  if (!exit_code_) ::kill(pid_, number);
}

std::optional<int> Process::wait(std::chrono::milliseconds timeout) {
  const auto end = Clock::now() + timeout;
  while (!exit_code_) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    } else if (Clock::now() > end) {
      return std::nullopt;
    } else {
      sleep_ms(2);
    }
  }
  return exit_code_;
}

CommandResult run_command(const Arguments& arguments, std::chrono::milliseconds timeout) {
  std::string pattern = (fs::temp_directory_path() / "meshloom_e2e_XXXXXX").string();
  const fs::path folder = ::mkdtemp(pattern.data());
  CommandResult result;
  {
    Process process(arguments, folder / "out", folder / "err");
    result.exit_code = process.wait(timeout).value_or(-1);
  }
  result.output = read_file(folder / "out");
  result.errors = read_file(folder / "err");
  fs::remove_all(folder);
  return result;
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool is_alive(pid_t pid) {
  const auto stat = base::read_process_stat(pid);
  return stat && !stat->has_ended();
}

std::int64_t status_number(pid_t pid, const std::string& name) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1));
  return 0;
}

std::vector<std::string> tcp_listeners(pid_t pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  std::set<std::string> sockets;  // "socket:[INODE]"
  std::error_code ignored;
  for (const auto& fd : fs::directory_iterator(process + "/fd", ignored))
    sockets.insert(fs::read_symlink(fd.path(), ignored).string());
  constexpr const char* kListen = "0A";
  std::vector<std::string> listeners;
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    std::ifstream file(process + table);
    std::string line;
    std::getline(file, line);  // the titles
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, queues, timer, retries, user, timeout, inode;
      fields >> slot >> local >> remote >> state >> queues >> timer >> retries >> user >> timeout >>
          inode;
      if (state == kListen && sockets.count("socket:[" + inode + "]") != 0)
        listeners.push_back(local);
    }
  }
  return listeners;
}

int port_of(const std::string& listener) {
  return std::stoi(listener.substr(listener.rfind(':') + 1), nullptr, 16);
}

void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

}  // namespace meshloom::e2e
