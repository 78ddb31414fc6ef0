// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/rank_channel.h"

#include <climits>

#include "daemon/control/net/grpc_server.h"
#include "daemon/control/net/secret.h"
#include "daemon/control/net/status.h"

namespace meshloom::control {

std::shared_ptr<grpc::Channel> make_rank_channel(const std::string& address, bool apart,
                                                 const LaunchKey& key) {
  grpc::ChannelArguments arguments;
  // As GrpcServerOptions::between_ranks at the other end.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, INT_MAX);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (apart) arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kInnerMessageBytes);
  arguments.SetMaxSendMessageSize(kInnerMessageBytes);
  if (key.empty())
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  arguments.SetSslTargetNameOverride(kLaunchName);
  return grpc::CreateCustomChannel(
      address, grpc::SslCredentials({key.certificate, key.key, key.certificate}), arguments);
}

std::shared_ptr<grpc::ServerCredentials> rank_server_credentials(const LaunchKey& key) {
  if (key.empty()) return nullptr;
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = key.certificate;
  options.pem_key_cert_pairs.push_back({key.key, key.certificate});
  return grpc::SslServerCredentials(options);
}

bool is_of_launch(const grpc::ServerContext& context, const std::string& secret) {
  const auto given = context.client_metadata().find(kSecretKey);
  return given != context.client_metadata().end() &&
         same_secret({given->second.data(), given->second.size()}, secret);
}

grpc::Status no_member_of_launch() {
  return unauthenticated("this port is for the ranks of one launch", "SECRET_WRONG");
}

}  // namespace meshloom::control
