// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/tls_credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

namespace meshloom::control {

std::shared_ptr<grpc::ServerCredentials> tls_server_credentials(const CertificateWatch& watch) {
  constexpr unsigned kLookSeconds = 1;
  const bool asks_clients = !watch.client_ca().empty();
  const auto files = std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      watch.key().string(), watch.certificate().string(), watch.client_ca().string(), kLookSeconds);
  grpc::experimental::TlsServerCredentialsOptions options(files);
  options.watch_identity_key_cert_pairs();
  if (asks_clients) options.watch_root_certs();
  options.set_cert_request_type(asks_clients ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
                                             : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace meshloom::control
