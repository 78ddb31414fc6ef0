// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/beat_client.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <vector>

#include "daemon/base/system_message.h"
#include "daemon/control/net/unix_listener.h"
#include "daemon/control/ranks/beat_server.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

SocketAddress target_address(const std::string& text) {
  if (text.starts_with(kAbstractScheme))
    return abstract_address(text.substr(std::string_view(kAbstractScheme).size()));
  return resolve_listen_address(text, "rank 0's heartbeats").addresses.front();
}

}  // namespace

BeatClient::BeatClient(Options options, Observer& observer)
    : options_(std::move(options)),
      observer_(observer),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  check_internal(static_cast<bool>(wake_), "no descriptor for heartbeats: {}",
                 base::system_message(errno));
  thread_ = std::thread([this] { run(); });
}

BeatClient::~BeatClient() {
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

bool BeatClient::wait(int socket, short events, Clock::time_point end) {
  pollfd watched[] = {{wake_.get(), POLLIN, 0}, {socket, events, 0}};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
  ::poll(watched, socket < 0 ? 1 : 2, std::max(0, static_cast<int>(left.count())));
  return watched[0].revents == 0;
}

BeatConnection BeatClient::connect() {
  const auto check_done = [](bool done) {
    if (!done) throw CommError(base::system_message(errno));
  };
  const SocketAddress address = target_address(options_.address);
  base::UniqueFd fd(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  check_done(static_cast<bool>(fd));
  if (::connect(fd.get(), address.get(), address.size) != 0) {
    check_done(errno == EINPROGRESS);
    wait(fd.get(), POLLOUT, Clock::now() + 2 * kHeartbeatPeriod);
    int error = ETIMEDOUT;
    socklen_t size = sizeof error;
    pollfd ready{fd.get(), POLLOUT, 0};
    if (::poll(&ready, 1, 0) == 1) ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    errno = error;
    check_done(error == 0);
  }
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  std::optional<LaunchTls> tls;
  if (!options_.key.empty()) tls.emplace(options_.key, LaunchTls::Side::kClient, fd.get());
  BeatConnection connection(std::move(fd), std::move(tls));
  check_done(connection.send(beat_introduction(options_.secret, options_.rank)));
  return connection;
}

bool BeatClient::hear(std::optional<BeatConnection>& connection) {
  if (!connection) return false;
  std::vector<std::string> beats;
  if (!connection->receive(&beats)) connection.reset();
  if (beats.empty()) return false;
  observer_.rank0_heard();
  return true;
}

void BeatClient::run() {
  // Later than rank 0's next beat, which wakes this thread anyway.
  constexpr auto kUnasked = kHeartbeatPeriod + kHeartbeatPeriod / 8;
  std::optional<BeatConnection> connection;
  bool told = false;
  auto next_beat = Clock::now();
  while (wait(connection ? connection->fd() : -1, POLLIN, next_beat)) {
    if (!hear(connection) && Clock::now() < next_beat) continue;
    try {
      if (!connection) connection = connect();
      told = false;
    } catch (const Error& error) {
      if (!told)
        spdlog::warn("heartbeats do not reach rank 0 at {}: {}", options_.address, error.what());
      told = true;
    }
    if (connection && !connection->send(observer_.beat().SerializeAsString())) connection.reset();
    observer_.look_at_rank0();
    next_beat = Clock::now() + kUnasked;
  }
}

}  // namespace meshloom::control
