// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/beat_connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "kernels/base/error.h"

namespace meshloom::control {

std::optional<std::size_t> BeatConnection::send_some(std::string_view bytes) {
  if (tls_) {
    std::size_t count = 0;
    const LaunchTls::Outcome outcome = tls_->write(bytes.data(), bytes.size(), &count);
    if (outcome == LaunchTls::Outcome::kEnded) return std::nullopt;
    return outcome == LaunchTls::Outcome::kDone ? count : 0;
  }
  ssize_t sent = 0;
  do sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent < 0) return errno == EAGAIN ? std::optional<std::size_t>(0) : std::nullopt;
  return static_cast<std::size_t>(sent);
}

std::optional<std::size_t> BeatConnection::read_some(char* bytes, std::size_t room) {
  if (tls_) {
    std::size_t count = 0;
    const LaunchTls::Outcome outcome = tls_->read(bytes, room, &count);
    if (outcome == LaunchTls::Outcome::kEnded) return std::nullopt;
    return outcome == LaunchTls::Outcome::kDone ? count : 0;
  }
  ssize_t count = 0;
  do count = ::recv(socket_.get(), bytes, room, 0);
  while (count < 0 && errno == EINTR);
  if (count < 0) return errno == EAGAIN ? std::optional<std::size_t>(0) : std::nullopt;
  if (count == 0) return std::nullopt;
  return static_cast<std::size_t>(count);
}

bool BeatConnection::flush() {
  while (!unsent_.empty()) {
    const std::optional<std::size_t> sent = send_some(unsent_);
    if (!sent) return false;
    if (*sent == 0) return true;
    unsent_.erase(0, *sent);
  }
  return true;
}

bool BeatConnection::send(std::string_view message) {
  check_internal(message.size() <= kLongestMessage, "a heartbeat has {} bytes", message.size());
  if (!flush()) return false;
  if (!unsent_.empty()) return true;
  unsent_.push_back(static_cast<char>(message.size() & 0xff));
  unsent_.push_back(static_cast<char>(message.size() >> 8));
  unsent_.append(message);
  return flush();
}

bool BeatConnection::read(std::size_t most_bytes) {
  const std::size_t before = received_.size();
  const std::size_t end = before + most_bytes;
  while (received_.size() < end) {
    char piece[2048];
    const std::size_t room = std::min(sizeof piece, end - received_.size());
    const std::optional<std::size_t> count = read_some(piece, room);
    if (!count) return false;
    if (*count == 0) return true;
    received_.append(piece, *count);
  }
  return true;
}

bool BeatConnection::receive(std::vector<std::string>* messages, std::size_t most_bytes) {
  const std::size_t longest = std::min(kLongestMessage, most_bytes - 2);
  bool open = read(most_bytes - std::min(most_bytes, received_.size()));
  // What waits until a handshake has ended can go now.
  if (open && tls_) open = flush();
  std::size_t at = 0;
  while (received_.size() - at >= 2) {
    const std::size_t size = static_cast<unsigned char>(received_[at]) |
                             static_cast<unsigned char>(received_[at + 1]) << 8;
    if (size > longest) return false;
    if (received_.size() - at < 2 + size) break;
    messages->push_back(received_.substr(at + 2, size));
    at += 2 + size;
  }
  received_.erase(0, at);
  return open;
}

}  // namespace meshloom::control
