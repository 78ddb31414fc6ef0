// SPDX-License-Identifier: Apache-2.0
// ClientAccess: by what ways clients come in, and how they are known.
#pragma once

#include <grpcpp/grpcpp.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "daemon/control/access/caller_identifier.h"
#include "daemon/control/access/certificate_watch.h"
#include "daemon/control/access/token_store.h"
#include "daemon/control/host/ticker.h"
#include "daemon/control/net/listen_address.h"
#include "daemon/control/net/unix_listener.h"
#include "v1/config.pb.h"

namespace meshloom::control {

/// Whether the files of certificates and tokens can be used. Throws as ClientAccess does; makes and
/// changes nothing.
void check_access_files(const v1::DaemonConfig& config);

/// What the daemon's settings make of certificates, tokens, roles and sockets. Any thread may call
/// any function.
class ClientAccess {
 public:
  /// `config` has every field filled in. Makes STATE_DIR/socket and the folder STATE_DIR/tls.
  /// Throws what keeps the daemon from starting as it was told to: as CertificateWatch, TokenStore,
  /// RoleRules and UnixListener do.
  ClientAccess(const v1::DaemonConfig& config, const ListenAddress& listen);
  ClientAccess(const ClientAccess&) = delete;
  ClientAccess& operator=(const ClientAccess&) = delete;

  CallerIdentifier& identifier() { return identifier_; }
  TokenStore& tokens() { return tokens_; }
  /// Null: TCP is in the clear.
  std::shared_ptr<grpc::ServerCredentials> tls() const { return tls_; }
  std::vector<UnixListener*> unix_listeners();
  /// How this host's clients of the daemon's own account reach it without a certificate: an address
  /// of gRPC. Empty: by TCP alone.
  std::string socket_address() const;
  /// What whoever runs the daemon has to know; `facts` of the start, and what has come since.
  std::vector<std::string> notes();
  /// A fact of the start that others have found; told in the log as well.
  void add_note(std::string note);

 private:
  void open_socket();
  void find_facts();

  const v1::DaemonConfig config_;
  const ListenAddress listen_;
  std::vector<std::string> facts_;  ///< complete before the first client comes
  std::unique_ptr<CertificateWatch> certificates_;
  TokenStore tokens_;
  CallerIdentifier identifier_;
  std::shared_ptr<grpc::ServerCredentials> tls_;
  std::unique_ptr<UnixListener> own_socket_, other_socket_;
  std::unique_ptr<Ticker> ticker_;  ///< of certificates
};

}  // namespace meshloom::control
