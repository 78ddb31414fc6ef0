// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/grpc_server.h"

#include <grpc/support/log.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <optional>
#include <utility>

#include "daemon/control/net/call_identity.h"
#include "daemon/control/net/connection_watch.h"
#include "daemon/control/net/status.h"
#include "daemon/control/net/unread_requests.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kMemoryQuota = 256u << 20;

void set_limits(const GrpcServerOptions& options, grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 5'000);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 300'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, options.between_ranks ? INT_MAX : 10'000);
  if (options.between_ranks) builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, ConnectionWatch::kCallsAtOnce);
  const int message_bytes = options.between_ranks ? kInnerMessageBytes : kPublicMessageBytes;
  builder->SetMaxReceiveMessageSize(message_bytes);
  builder->SetMaxSendMessageSize(message_bytes);
  grpc::ResourceQuota quota("meshloom");
  quota.Resize(kMemoryQuota);
  quota.SetMaxThreads(options.max_threads);
  builder->SetResourceQuota(quota);
  builder->SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
}

void forward_log(gpr_log_func_args* arguments) { spdlog::debug("gRPC: {}", arguments->message); }

}  // namespace

void route_grpc_log() { gpr_set_log_function(&forward_log); }

grpc::ServerGenericBidiReactor* UnknownMethods::CreateReactor(
    grpc::GenericCallbackServerContext* call) {
  struct Refusal final : grpc::ServerGenericBidiReactor {
    void OnDone() override { delete this; }
  };
  auto* refusal = new Refusal;
  refusal->Finish(to_status(to_details(Unimplemented(
      fmt::format("this meshloomd has no method {}: is the client of another version?",
                  call->method()),
      "METHOD_UNKNOWN"))));
  return refusal;
}

GrpcServer::GrpcServer(const GrpcServerOptions& options)
    : acceptor_(options.listen, options.most_connections, !options.between_ranks),
      everybody_({.everybody_is_admin = true}) {
  grpc::EnableDefaultHealthCheckService(options.health);
  grpc::ServerBuilder builder;
  set_limits(options, &builder);
  doors_ = std::make_unique<ConnectionDoors>(
      ConnectionDoors::Options{.tls = options.tls,
                               .identifier = options.identifier,
                               .tcp = !is_nowhere(options.listen) || options.between_ranks,
                               .unix_sockets = !options.unix_listeners.empty()},
      &builder);
  for (auto* service : options.services) builder.RegisterService(service);
  builder.RegisterCallbackGenericService(&unknown_methods_);
  if (!options.between_ranks) {
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> creators;
    creators.push_back(std::make_unique<IdentifyCallers>(
        options.identifier != nullptr ? *options.identifier : everybody_));
    creators.push_back(std::make_unique<UnreadRequests>());
    builder.experimental().SetInterceptorCreators(std::move(creators));
  }
  server_ = builder.BuildAndStart();
  check_internal(server_ != nullptr, "gRPC does not start a server on {}", options.listen.text);
  set_serving(false);
  for (UnixListener* listener : options.unix_listeners) acceptor_.add(listener->take());
  if (!options.abstract_name.empty()) acceptor_.add(listen_abstract(options.abstract_name));
  acceptor_.start([this, between_ranks = options.between_ranks](
                      int listener, base::UniqueFd connection, std::optional<uid_t> account) {
    // All ranks are of one account.
    if (between_ranks && account && *account != ::geteuid()) return;
    doors_->hand_over(listener, std::move(connection), account);
  });
}

GrpcServer::~GrpcServer() { shutdown(); }

void GrpcServer::set_serving(bool serving) {
  if (auto* health = server_->GetHealthCheckService()) health->SetServingStatus(serving);
}

void GrpcServer::shutdown() {
  acceptor_.stop();
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
  server_->Wait();
}

}  // namespace meshloom::control
