// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/grpc_server.h"

#include <grpc/support/log.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <charconv>
#include <chrono>
#include <climits>

#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr int kMessageBytes = 4 << 20;
constexpr std::size_t kMemoryQuota = 256u << 20;

void set_limits(const GrpcServerOptions& options, grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 5'000);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 300'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, options.between_ranks ? INT_MAX : 10'000);
  if (options.between_ranks) builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 100);
  builder->SetMaxReceiveMessageSize(kMessageBytes);
  builder->SetMaxSendMessageSize(kMessageBytes);
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

GrpcServer::GrpcServer(const GrpcServerOptions& options) {
  grpc::EnableDefaultHealthCheckService(options.health);
  grpc::ServerBuilder builder;
  set_limits(options, &builder);
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &port_);
  for (auto* service : options.services) builder.RegisterService(service);
  server_ = builder.BuildAndStart();
  if (!server_ || port_ == 0)
    throw FailedPrecondition(
        fmt::format("cannot listen on {}: the port is taken (by another meshloomd?), or the "
                    "address is not one of this host",
                    options.listen),
        "CANNOT_LISTEN", {{"address", options.listen}});
  set_serving(false);
}

GrpcServer::~GrpcServer() { shutdown(); }

void GrpcServer::set_serving(bool serving) {
  if (auto* health = server_->GetHealthCheckService()) health->SetServingStatus(serving);
}

void GrpcServer::shutdown() {
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
  server_->Wait();
}

HostPort parse_host_port(const std::string& text, const std::string& what) {
  const auto colon = text.rfind(':');
  HostPort parsed;
  bool valid = colon != std::string::npos && colon > 0;
  if (valid) {
    parsed.host = text.substr(0, colon);
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, parsed.port);
    valid = error == std::errc() && rest == end && parsed.port >= 0 && parsed.port <= 65535;
  }
  check(valid, "{} is \"{}\", expected host:port with a port of 0 to 65535", what, text);
  return parsed;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "[::1]" || host.rfind("127.", 0) == 0;
}

}  // namespace meshloom::control
