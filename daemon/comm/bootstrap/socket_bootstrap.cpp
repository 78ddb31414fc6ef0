// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/bootstrap/socket_bootstrap.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

using Deadline = std::chrono::steady_clock::time_point;

class SocketBootstrap : public Bootstrap {
 public:
  SocketBootstrap(int rank, int world_size, std::vector<int> sockets,
                  std::chrono::milliseconds timeout)
      : rank_(rank), world_size_(world_size), sockets_(std::move(sockets)), timeout_(timeout) {}
  ~SocketBootstrap() override {
    for (const int fd : sockets_)
      if (fd >= 0) close(fd);
  }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }

  std::vector<std::string> exchange(const std::string& mine) override {
    const Deadline deadline = std::chrono::steady_clock::now() + timeout_;
    std::vector<std::string> all(static_cast<std::size_t>(world_size_));
    if (rank_ != 0) {
      write_message(0, mine, deadline);
      for (std::string& value : all) value = read_message(0, deadline);
      return all;
    }
    all[0] = mine;
    for (int r = 1; r < world_size_; ++r)
      all[static_cast<std::size_t>(r)] = read_message(r, deadline);
    for (int r = 1; r < world_size_; ++r)
      for (const std::string& value : all) write_message(r, value, deadline);
    return all;
  }

  std::string broadcast(const std::string& value, int root) override {
    return exchange(rank_ == root ? value : std::string())[static_cast<std::size_t>(root)];
  }

  void barrier() override { exchange({}); }

 private:
  int socket_to(int peer) const {
    return sockets_[rank_ == 0 ? static_cast<std::size_t>(peer) : 0];
  }

  void await(int peer, short events, Deadline deadline) const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd entry{socket_to(peer), events, 0};
    if (left.count() <= 0 || poll(&entry, 1, static_cast<int>(left.count())) == 0)
      throw DeadlineExceeded(
          fmt::format("bootstrap on rank {} of {}: nothing from rank {} within {} ms", rank_,
                      world_size_, peer, timeout_.count()),
          "BOOTSTRAP_TIMEOUT");
  }

  [[noreturn]] void fail(int peer) const {
    throw CommError(
        fmt::format("bootstrap on rank {} of {}: rank {} is gone", rank_, world_size_, peer));
  }

  void write_bytes(int peer, const char* data, std::size_t bytes, Deadline deadline) const {
    while (bytes > 0) {
      await(peer, POLLOUT, deadline);
      const ssize_t n = ::send(socket_to(peer), data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n <= 0) fail(peer);
      data += n;
      bytes -= static_cast<std::size_t>(n);
    }
  }

  void read_bytes(int peer, char* data, std::size_t bytes, Deadline deadline) const {
    while (bytes > 0) {
      await(peer, POLLIN, deadline);
      const ssize_t n = ::recv(socket_to(peer), data, bytes, MSG_DONTWAIT);
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n <= 0) fail(peer);
      data += n;
      bytes -= static_cast<std::size_t>(n);
    }
  }

  void write_message(int peer, const std::string& value, Deadline deadline) const {
    const std::uint64_t bytes = value.size();
    write_bytes(peer, reinterpret_cast<const char*>(&bytes), sizeof(bytes), deadline);
    write_bytes(peer, value.data(), value.size(), deadline);
  }

  std::string read_message(int peer, Deadline deadline) const {
    std::uint64_t bytes = 0;
    read_bytes(peer, reinterpret_cast<char*>(&bytes), sizeof(bytes), deadline);
    std::string value(bytes, '\0');
    read_bytes(peer, value.data(), bytes, deadline);
    return value;
  }

  int rank_;
  int world_size_;
  std::vector<int> sockets_;
  std::chrono::milliseconds timeout_;
};

}  // namespace

std::unique_ptr<Bootstrap> make_socket_bootstrap(int rank, int world_size, std::vector<int> sockets,
                                                 std::chrono::milliseconds timeout) {
  return std::make_unique<SocketBootstrap>(rank, world_size, std::move(sockets), timeout);
}

}  // namespace meshloom::comm
