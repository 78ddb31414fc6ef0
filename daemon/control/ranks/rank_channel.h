// SPDX-License-Identifier: Apache-2.0
// Connections of the ranks to rank 0, and how they prove that they are of its launch.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "daemon/control/access/launch_key.h"

namespace meshloom::control {

/// Metadata key of the per-launch secret.
inline constexpr const char* kSecretKey = "meshloom-launch-secret";

/// Of bulk data between ranks, at a time.
inline constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

/// To a server with GrpcServerOptions::between_ranks. `apart`: over a connection of its own, so
/// that nothing else of this rank waits behind its bytes. `key`: calls are encrypted, unless it is
/// empty.
std::shared_ptr<grpc::Channel> make_rank_channel(const std::string& address, bool apart,
                                                 const LaunchKey& key = {});
/// Of such a server, whose clients have the same key. Null for an empty one.
std::shared_ptr<grpc::ServerCredentials> rank_server_credentials(const LaunchKey& key);

/// Whether a call brings the launch's secret.
bool is_of_launch(const grpc::ServerContext& context, const std::string& secret);
/// What one without it gets.
grpc::Status no_member_of_launch();

}  // namespace meshloom::control
