// SPDX-License-Identifier: Apache-2.0
// Credentials: by what a client knows a daemon, and shows it who it is.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "daemon/base/env.h"

namespace meshloom::cli {

/// Paths of files; empty: none. Secrets are in files alone, since others on a host can see what
/// programs are called with.
struct CredentialFiles {
  std::string token{};  ///< one word on one line
  std::string ca{};     ///< of the daemon's certificate (PEM): calls are encrypted then
  std::string cert{};   ///< of the client (PEM), with those between it and its CA
  std::string key{};    ///< of cert
};

/// Credentials have what the files hold.
struct Credentials {
  std::string token;
  std::string ca;
  std::string cert;
  std::string key;

  bool encrypts() const { return !ca.empty(); }
};

/// Returns for each file the first of these that there is: what the line names, the environment,
/// and `token`, `ca.pem`, `cert.pem` or `key.pem` in CONFIG/meshloom/HOST:PORT of a complete
/// address, CONFIG being XDG_CONFIG_HOME or HOME/.config. Those of the environment and below CONFIG
/// are for addresses of TCP: a Unix socket needs none of them.
CredentialFiles find_credentials(const CredentialFiles& asked, const base::Environment& environment,
                                 const std::string& address);

/// Throws CliError (kUsage) for a file that cannot be read, a secret that others may read, a
/// certificate without its key or without a CA, and a token that would go in the clear to another
/// host.
Credentials read_credentials(const CredentialFiles& files, const std::string& address);

/// Returns what a channel is made with.
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const Credentials& credentials);

}  // namespace meshloom::cli
