// SPDX-License-Identifier: Apache-2.0
// Credentials of gRPC made of certificates.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "daemon/control/access/certificate_watch.h"

namespace meshloom::control {

/// For a server with the certificate that the watch has at the time. Clients may show one of the CA
/// of clients, where there is one; a connection with a certificate that this CA has not signed, or
/// that is not valid now, is not taken.
std::shared_ptr<grpc::ServerCredentials> tls_server_credentials(const CertificateWatch& watch);

}  // namespace meshloom::control
