// SPDX-License-Identifier: Apache-2.0
// Accepts connections in gRPC's place, which goes deaf for good once it runs out of descriptors.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/base/unique_fd.h"
#include "daemon/control/net/connection_guard.h"
#include "daemon/control/net/listen_address.h"
#include "daemon/control/net/slots.h"

namespace meshloom::control {

/// Listens on some addresses with one port and a thread of its own. A connection above the cap, or
/// above the share of one client, is accepted and closed, so that it hears of it at once. Accounts
/// of this host are clients of their own.
class Acceptor {
 public:
  /// Takes the new connection, a nonblocking socket, and closes it in the end. `account`: of the
  /// other end, if it is on this host and known.
  using OnConnection =
      std::function<void(int listener, base::UniqueFd connection, std::optional<uid_t> account)>;

  /// Binds; nobody is accepted before start(). `watches`: connections are given to gRPC, and those
  /// that a ConnectionGuard finds are shut down. Throws FailedPrecondition (CANNOT_LISTEN).
  Acceptor(const ListenAddress& listen, int most_connections, bool watches = false);
  /// Accepts on this socket too. Before start().
  void add(base::UniqueFd listener) { listeners_.push_back(std::move(listener)); }
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// 0 of one that listens nowhere but on sockets that were added.
  int port() const { return port_; }
  void start(OnConnection on_connection);
  /// Closes the listeners. Connections that stand are left alone.
  void stop();

 private:
  /// A connection that was given away. Whoever has it closes it without a word, so its socket is
  /// known by its number in the kernel.
  struct Connection {
    int fd;
    ino_t socket;
    Slots::Slot slot;
  };
  using Clock = std::chrono::steady_clock;
  /// Refusals since the last line of the log about them.
  struct Refused {
    int count = 0;
    Clock::time_point since;
  };

  void run();
  /// False if the kernel had none to give, or no descriptor for it.
  bool accept_one(int listener);
  void admit(int listener, base::UniqueFd connection, const SocketAddress& peer);
  void refuse_without_descriptor(int listener);
  void note_refusal(const std::string& client);

  std::vector<base::UniqueFd> listeners_;
  int port_ = 0;
  OnConnection on_connection_;
  Slots slots_;
  std::vector<Connection> open_;
  Clock::time_point last_look_;  ///< for connections that were closed
  Refused refused_;
  std::unique_ptr<ConnectionGuard> guard_;  ///< null: connections are not watched
  base::UniqueFd reserve_;  ///< given up to refuse a connection when no descriptor is left
  base::UniqueFd wake_;
  std::thread thread_;
};

}  // namespace meshloom::control
