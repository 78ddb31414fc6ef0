// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/beat_connection.h"

#include <sys/socket.h>

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

bool BeatConnection::receive(std::vector<std::string>* messages) {
  char piece[2048];
  ssize_t count = 0;
  do {
    count = ::recv(socket_.get(), piece, sizeof piece, 0);
    if (count > 0) received_.append(piece, static_cast<std::size_t>(count));
  } while (count == sizeof piece || (count < 0 && errno == EINTR));
  const bool ended = count == 0 || (count < 0 && errno != EAGAIN);
  while (received_.size() >= 2) {
    const std::size_t size =
        static_cast<unsigned char>(received_[0]) | static_cast<unsigned char>(received_[1]) << 8;
    if (size > kLongestMessage) return false;
    if (received_.size() < 2 + size) break;
    messages->push_back(received_.substr(2, size));
    received_.erase(0, 2 + size);
  }
  return !ended;
}

}  // namespace meshloom::control
