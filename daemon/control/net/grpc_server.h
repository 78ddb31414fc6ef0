// SPDX-License-Identifier: Apache-2.0
// A gRPC server with every limit set: the library's defaults do not fit a daemon.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <vector>

#include "daemon/control/access/caller_identifier.h"
#include "daemon/control/net/acceptor.h"
#include "daemon/control/net/connection_doors.h"
#include "daemon/control/net/unix_listener.h"

namespace meshloom::control {

/// Of one message of a client, or to it: the samples of a verb are the largest, and others are
/// checked by check_request_size (status.h).
inline constexpr int kPublicMessageBytes = 16 << 20;
/// Between the ranks: whatever a client may send fits into a command with room to spare.
inline constexpr int kInnerMessageBytes = 64 << 20;

struct GrpcServerOptions {
  ListenAddress listen;  ///< port 0: any free one
  std::vector<grpc::Service*> services;
  int most_connections = 64;
  bool health = false;  ///< with the standard health service, NOT_SERVING at first
  int max_threads = 192;
  /// Between the ranks of one daemon: messages may be larger, connections are not pinged, since
  /// heartbeats watch the ranks, and windows are not probed for, which costs an idle rank more than
  /// those.
  bool between_ranks = false;
  /// Finds out who calls, and outlives the server; null: everybody is an admin, whom nobody asks.
  CallerIdentifier* identifier = nullptr;
  std::shared_ptr<grpc::ServerCredentials> tls = nullptr;  ///< of TCP; null: in the clear
  std::vector<UnixListener*> unix_listeners = {};          ///< which outlive the server
  /// Between ranks of one host: of a Unix socket on which it listens too, and lets in the own
  /// account alone; empty: none.
  std::string abstract_name = {};
};

/// Refuses methods that no service has, which gRPC alone would do without a word.
class UnknownMethods final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* call) override;
};

class GrpcServer {
 public:
  /// Throws FailedPrecondition (CANNOT_LISTEN) if the address is not free or not this host's.
  explicit GrpcServer(const GrpcServerOptions& options);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  int port() const { return acceptor_.port(); }
  void set_serving(bool serving);
  /// Calls in flight get a moment to end.
  void shutdown();

 private:
  Acceptor acceptor_;
  UnknownMethods unknown_methods_;
  CallerIdentifier everybody_;  ///< in the place of an identifier
  std::unique_ptr<ConnectionDoors> doors_;
  std::unique_ptr<grpc::Server> server_;
};

/// gRPC's own messages go to the log at level debug.
void route_grpc_log();

}  // namespace meshloom::control
