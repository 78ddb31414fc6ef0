// SPDX-License-Identifier: Apache-2.0
// ConnectionDoors: gives connections to gRPC, each by the acceptor that knows who is behind it.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/base/unique_fd.h"
#include "daemon/control/access/caller_identifier.h"
#include "daemon/control/net/call_identity.h"

namespace meshloom::control {

/// gRPC has acceptors from before a server starts, so that there is one for each account that may
/// yet come, and its connections are that account's for good. Used by the thread that accepts.
class ConnectionDoors {
 public:
  /// Accounts with a role, beside the daemon's own, that may connect while it runs.
  static constexpr int kMostAccounts = 62;

  struct Options {
    std::shared_ptr<grpc::ServerCredentials> tls;  ///< of TCP; null: without
    /// Null, or one that takes everybody for an admin: TCP is taken from anywhere, without a look
    /// at who it is.
    CallerIdentifier* identifier = nullptr;
    bool tcp = true;
    bool unix_sockets = false;  ///< else those that come are taken like TCP
  };
  /// Adds the acceptors to a server that is being built.
  ConnectionDoors(const Options& options, grpc::ServerBuilder* builder);

  /// Gives a connection to gRPC, or closes it where no acceptor is left for its account. `account`:
  /// of the other end, where it is known.
  void hand_over(int listener, base::UniqueFd connection, std::optional<uid_t> account);

 private:
  struct Door {
    std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
    std::shared_ptr<AccountMark> mark;  ///< null: it is the same for all
  };
  /// Those of one kind of local connections.
  struct LocalDoors {
    std::vector<Door> doors;        ///< the own account's, that of nobody, and others
    std::map<uid_t, size_t> given;  ///< to accounts
    size_t free = 0;                ///< the first that is nobody's yet
  };

  LocalDoors make_local(grpc_local_connect_type type, grpc::ServerBuilder* builder) const;
  /// Null where none is left.
  Door* local_door(LocalDoors& local, std::optional<uid_t> account);

  CallerIdentifier* const identifier_;
  std::optional<Door> tcp_;  ///< for all of TCP; nothing: local_tcp_ has them
  LocalDoors local_tcp_;
  LocalDoors unix_;
};

}  // namespace meshloom::control
