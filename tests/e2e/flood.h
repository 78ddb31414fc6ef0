// SPDX-License-Identifier: Apache-2.0
// Many connections to one port that say nothing.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

namespace meshloom::e2e {

/// Closed at the end of the scope. Raises this process's limit of descriptors.
class Flood {
 public:
  /// `address`: 127.0.0.1:port.
  explicit Flood(const std::string& address) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    target_.sin_family = AF_INET;
    target_.sin_port =
        htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    target_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  ~Flood() {
    for (const auto& item : open_) ::close(item.fd);
  }

  void connect(int count) {
    for (int i = 0; i < count; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (fd < 0) return;
      ::connect(fd, reinterpret_cast<const sockaddr*>(&target_), sizeof target_);
      open_.push_back({fd, POLLRDHUP, 0});
    }
  }
  int size() const { return static_cast<int>(open_.size()); }
  /// How many the daemon has closed.
  int refused() {
    ::poll(open_.data(), open_.size(), 0);
    return static_cast<int>(std::count_if(open_.begin(), open_.end(),
                                          [](const pollfd& item) { return item.revents != 0; }));
  }

 private:
  sockaddr_in target_{};
  std::vector<pollfd> open_;
};

}  // namespace meshloom::e2e
