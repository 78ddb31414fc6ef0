// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mesh/local_bootstrap.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <thread>
#include <vector>

#include "daemon/base/system_message.h"
#include "daemon/comm/bootstrap/socket_bootstrap.h"
#include "daemon/comm/mesh/shared_memory_world.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

class ForkedRank : public RankRuntime {
 public:
  ForkedRank(std::unique_ptr<Bootstrap> bootstrap, const std::shared_ptr<SharedMemoryWorld>& world,
             std::chrono::milliseconds timeout, const SymmetricOptions& symmetric,
             const HierarchyOptions& hierarchy)
      : bootstrap_(std::move(bootstrap)),
        self_(world, bootstrap_->rank(), timeout, symmetric, hierarchy) {}

  int rank() const override { return bootstrap_->rank(); }
  int world_size() const override { return bootstrap_->world_size(); }
  Bootstrap& bootstrap() override { return *bootstrap_; }
  std::unique_ptr<ProcessGroup> make_world_group(const GroupOptions& options) override {
    return self_.make_world_group(options);
  }

 private:
  std::unique_ptr<Bootstrap> bootstrap_;
  SharedMemoryRank self_;
};

/// pairs[r]: rank 0's end and rank r's end.
using SocketPairs = std::vector<std::array<int, 2>>;

void close_all(const SocketPairs& pairs, const std::vector<int>& but) {
  for (const auto& pair : pairs)
    for (const int fd : pair)
      if (fd >= 0 && std::find(but.begin(), but.end(), fd) == but.end()) close(fd);
}

[[noreturn]] void run_child(int rank, const SocketPairs& pairs,
                            std::shared_ptr<SharedMemoryWorld> world,
                            const std::function<int(RankRuntime&)>& body,
                            std::chrono::milliseconds timeout, const SymmetricOptions& symmetric,
                            const HierarchyOptions& hierarchy, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  std::vector<int> sockets;
  if (rank == 0) {
    for (const auto& pair : pairs) sockets.push_back(pair[0]);
  } else {
    sockets.push_back(pairs[static_cast<std::size_t>(rank)][1]);
  }
  close_all(pairs, sockets);
  int result = 1;
  try {
    ForkedRank self(make_socket_bootstrap(rank, world->world_size(), sockets, timeout), world,
                    timeout, symmetric, hierarchy);
    result = body(self);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  }
  std::fflush(nullptr);
  // The parent's destructors and exit handlers are not this child's.
  _exit(result);
}

int result_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// Waits for all; the first failure gives the others `grace` to end by themselves.
int reap(std::vector<pid_t> children, std::chrono::milliseconds grace) {
  int result = 0;
  auto kill_at = std::chrono::steady_clock::time_point::max();
  while (!children.empty()) {
    int status = 0;
    // Without a failure there is nothing to hurry for: the wait blocks.
    const pid_t pid = waitpid(-1, &status, result == 0 ? 0 : WNOHANG);
    if (pid > 0) {
      std::erase(children, pid);
      if (result == 0 && result_of(status) != 0) {
        result = result_of(status);
        kill_at = std::chrono::steady_clock::now() + grace;
      }
      continue;
    }
    if (pid < 0 && errno != EINTR) break;
    if (std::chrono::steady_clock::now() >= kill_at) {
      for (const pid_t child : children) kill(child, SIGKILL);
      kill_at = std::chrono::steady_clock::time_point::max();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return result;
}

}  // namespace

int run_local_ranks(int world_size, const std::function<int(RankRuntime&)>& body,
                    std::chrono::milliseconds timeout, const SymmetricOptions& symmetric,
                    const HierarchyOptions& hierarchy) {
  check(world_size >= 1, "{} local ranks", world_size);
  const auto world = std::make_shared<SharedMemoryWorld>(world_size);
  SocketPairs pairs(static_cast<std::size_t>(world_size), {-1, -1});
  for (std::size_t r = 1; r < pairs.size(); ++r)
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pairs[r].data()) != 0)
      throw ResourceExhausted(
          fmt::format("no socket for local rank {}: {}", r, base::system_message(errno)));
  const pid_t parent = getpid();
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < world_size; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) run_child(rank, pairs, world, body, timeout, symmetric, hierarchy, parent);
    if (pid < 0) {
      for (const pid_t child : children) kill(child, SIGKILL);
      reap(children, {});
      throw ResourceExhausted(
          fmt::format("no process for local rank {}: {}", rank, base::system_message(errno)));
    }
    children.push_back(pid);
  }
  close_all(pairs, {});
  return reap(std::move(children), std::chrono::seconds(1));
}

}  // namespace meshloom::comm
