// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/connection_guard.h"

#include <sys/socket.h>

#include "daemon/control/host/memory.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

// For how long no connections are taken of a client whose connection was shut down.
constexpr std::chrono::seconds kBar{2};
// After a connection was shut down, memory of its calls is given back to the host.
constexpr std::chrono::seconds kBeforeTidying{5};

}  // namespace

ConnectionGuard::~ConnectionGuard() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ConnectionGuard::add(int fd, ino_t socket, const SocketAddress& peer) {
  {
    const std::lock_guard lock(mutex_);
    watch_.add(fd, socket, peer);
  }
  changed_.notify_all();
}

bool ConnectionGuard::is_barred(const std::string& client) {
  const std::lock_guard lock(mutex_);
  const auto found = barred_.find(client);
  if (found == barred_.end()) return false;
  if (Clock::now() < found->second) return true;
  barred_.erase(found);
  return false;
}

void ConnectionGuard::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (watch_.empty() && tidy_at_ == Clock::time_point::max())
      changed_.wait(lock, [&] { return stopping_ || !watch_.empty(); });
    if (changed_.wait_for(lock, watch_.period(), [&] { return stopping_; })) return;
    look();
    if (Clock::now() < tidy_at_) continue;
    tidy_at_ = Clock::time_point::max();
    lock.unlock();
    give_back_free_memory();
    lock.lock();
  }
}

void ConnectionGuard::look() {
  for (const ConnectionWatch::Finding& found : watch_.look()) {
    spdlog::warn("a connection from {} is shut down: {}; none is taken from there for {} s",
                 found.client, found.cause, kBar.count());
    ::shutdown(found.fd, SHUT_RDWR);
    const auto now = Clock::now();
    barred_[found.client] = now + kBar;
    if (tidy_at_ == Clock::time_point::max()) tidy_at_ = now + kBeforeTidying;
  }
}

}  // namespace meshloom::control
