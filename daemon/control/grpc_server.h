// SPDX-License-Identifier: Apache-2.0
// A gRPC server with every limit set: the library's defaults do not fit a daemon.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

namespace meshloom::control {

struct GrpcServerOptions {
  std::string listen;  ///< host:port; port 0: any free one
  std::vector<grpc::Service*> services;
  bool health = false;  ///< with the standard health service, NOT_SERVING at first
  int max_threads = 192;
  /// Between the ranks of one daemon: connections are not pinged, since heartbeats watch them, and
  /// windows are not probed for, which costs an idle rank more than the heartbeats.
  bool between_ranks = false;
};

class GrpcServer {
 public:
  /// Throws FailedPrecondition (CANNOT_LISTEN) where the address is not free or not this host's.
  explicit GrpcServer(const GrpcServerOptions& options);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  int port() const { return port_; }
  void set_serving(bool serving);
  /// Calls in flight get a moment to end.
  void shutdown();

 private:
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

/// gRPC's own messages go to the log at level debug.
void route_grpc_log();

struct HostPort {
  std::string host;
  int port = 0;
};
/// Throws InvalidArgument naming `what` for text that is not host:port.
HostPort parse_host_port(const std::string& text, const std::string& what);
/// 127.0.0.0/8, ::1 or localhost.
bool is_loopback(const std::string& host);

}  // namespace meshloom::control
