// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/beat_connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "kernels/base/error.h"

namespace meshloom::control {

bool BeatConnection::flush() {
  while (!unsent_.empty()) {
    const ssize_t sent = ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN;
    unsent_.erase(0, static_cast<std::size_t>(sent));
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
    const ssize_t count = ::recv(socket_.get(), piece, room, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN;
    if (count == 0) return false;
    received_.append(piece, static_cast<std::size_t>(count));
  }
  return true;
}

bool BeatConnection::receive(std::vector<std::string>* messages, std::size_t most_bytes) {
  const std::size_t longest = std::min(kLongestMessage, most_bytes - 2);
  const bool open = read(most_bytes - std::min(most_bytes, received_.size()));
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
