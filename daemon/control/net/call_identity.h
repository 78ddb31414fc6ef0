// SPDX-License-Identifier: Apache-2.0
// How who makes a call gets from the connection, and the call's metadata, to its handler.
#pragma once

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/support/server_interceptor.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "daemon/control/access/caller_identifier.h"

namespace meshloom::control {

/// The metadata in which the handler of a call finds who makes it. Clients cannot send them: what
/// they send under these keys is replaced before a handler sees it.
inline constexpr const char* kProvenNameKey = "meshloom-proven-name";
inline constexpr const char* kProvenRoleKey = "meshloom-proven-role";
inline constexpr const char* kProvenRefusalKey = "meshloom-proven-refusal";

/// Marks the connections that come in by one of gRPC's acceptors with the account at their other
/// end, which gRPC itself would not remember: it calls all Unix sockets alike.
class AccountMark final : public grpc::AuthMetadataProcessor {
 public:
  static constexpr std::int64_t kNobody = -1;
  explicit AccountMark(std::int64_t account) : account_(account) {}

  /// Once, before the first connection comes in.
  void set_account(std::int64_t account) { account_ = account; }
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* connection,
                       OutputMetadata* consumed, OutputMetadata* response) override;

 private:
  std::atomic<std::int64_t> account_;
};

/// Finds out who makes each call of a server, before its handler runs.
class IdentifyCallers final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit IdentifyCallers(CallerIdentifier& identifier) : identifier_(identifier) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override;

 private:
  CallerIdentifier& identifier_;
};

}  // namespace meshloom::control
