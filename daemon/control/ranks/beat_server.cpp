// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/beat_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "daemon/base/system_message.h"
#include "daemon/control/net/secret.h"
#include "daemon/control/net/unix_listener.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr std::chrono::seconds kTimeToIntroduce{5};
constexpr int kStrangers = 32;  // that may be connected beside the ranks
// Bytes that are taken of a connection before it has said the secret.
constexpr std::size_t kLongestIntroduction = 100;

}  // namespace

std::string beat_introduction(const std::string& secret, int rank) {
  return fmt::format("{} {}", secret, rank);
}

BeatServer::BeatServer(Options options, Observer& observer)
    : options_(std::move(options)),
      observer_(observer),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      // A rank that connects anew may still have its old connection.
      acceptor_(options_.listen, kStrangers + 2 * options_.world_size) {
  check_internal(static_cast<bool>(wake_), "no descriptor for heartbeats: {}",
                 base::system_message(errno));
  if (!options_.abstract_name.empty()) acceptor_.add(listen_abstract(options_.abstract_name));
}

void BeatServer::start() {
  acceptor_.start([this](int, base::UniqueFd connection, std::optional<uid_t> account) {
    if (account && *account != ::geteuid()) return;  // no rank, of which all are of one account
    const std::lock_guard lock(mutex_);
    arrived_.push_back(std::move(connection));
    ::eventfd_write(wake_.get(), 1);
  });
  thread_ = std::thread([this] { run(); });
}

BeatServer::~BeatServer() {
  acceptor_.stop();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    ::eventfd_write(wake_.get(), 1);
  }
  if (thread_.joinable()) thread_.join();
}

void BeatServer::run() {
  auto next = Clock::now() + kHeartbeatPeriod;
  while (true) {
    pollfd wake{wake_.get(), POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    ::poll(&wake, 1, std::max(0, static_cast<int>(left.count())));
    if (Clock::now() >= next) {
      tick();
      next = Clock::now() + kHeartbeatPeriod;
    }
    if (wake.revents == 0) continue;
    take_arrived();
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
  }
}

void BeatServer::tick() {
  peers_.remove_if([this](Peer& peer) { return !hear(peer); });
  const auto now = Clock::now();
  // If this process did not run for a while, the answers are as old as that: ask again first.
  skipped_ = !skipped_ && now - asked_ > 2 * kHeartbeatPeriod;
  if (!skipped_) observer_.look();
  // The time is taken anew, since the look may have lasted.
  const auto later = Clock::now();
  peers_.remove_if([later](Peer& peer) {
    return peer.rank ? !peer.connection.send("") : later - peer.since > kTimeToIntroduce;
  });
  asked_ = now;
}

void BeatServer::take_arrived() {
  eventfd_t count = 0;
  ::eventfd_read(wake_.get(), &count);
  const std::lock_guard lock(mutex_);
  for (auto& connection : arrived_) {
    std::optional<LaunchTls> tls;
    if (!options_.key.empty())
      tls.emplace(options_.key, LaunchTls::Side::kServer, connection.get());
    peers_.push_back(
        {BeatConnection(std::move(connection), std::move(tls)), Clock::now(), std::nullopt});
  }
  arrived_.clear();
}

bool BeatServer::hear(Peer& peer) {
  std::vector<std::string> messages;
  bool open = true;
  if (!peer.rank) {
    open = peer.connection.receive(&messages, kLongestIntroduction);
    if (messages.empty()) return open;
    if (!introduce(peer, messages.front())) return false;
    messages.erase(messages.begin());
  }
  open = open && peer.connection.receive(&messages);
  for (const std::string& message : messages) {
    v1::Heartbeat beat;
    if (!beat.ParseFromString(message)) return false;
    observer_.heard(*peer.rank, beat, asked_);
  }
  return open;
}

bool BeatServer::introduce(Peer& peer, const std::string& message) const {
  const std::size_t space = message.rfind(' ');
  if (space == std::string::npos || !same_secret(message.substr(0, space), options_.secret))
    return false;
  int rank = 0;
  const char* end = message.data() + message.size();
  const auto [rest, error] = std::from_chars(message.data() + space + 1, end, rank);
  if (error != std::errc() || rest != end || rank < 1 || rank >= options_.world_size) return false;
  peer.rank = rank;
  return true;
}

}  // namespace meshloom::control
