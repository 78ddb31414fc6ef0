// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/client_access.h"

#include <fmt/ranges.h>

#include <chrono>
#include <ctime>
#include <utility>

#include "daemon/base/host_identity.h"
#include "daemon/control/net/tls_credentials.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kCertificateLook{1000};

std::unique_ptr<CertificateWatch> watch_certificates(const v1::DaemonConfig& config) {
  if (config.access().tls_cert().empty()) return nullptr;
  return std::make_unique<CertificateWatch>(config.access(), fs::path(config.state_dir()) / "tls");
}

fs::path token_path(const v1::DaemonConfig& config) {
  const std::string& given = config.access().tokens();
  return given.empty() ? fs::path(config.state_dir()) / "access_tokens" : fs::path(given);
}

}  // namespace

void check_access_files(const v1::DaemonConfig& config) {
  const v1::AccessConfig& access = config.access();
  if (!access.tls_cert().empty())
    check_certificate(
        read_certificate_files(access.tls_cert(), access.tls_key(), access.tls_client_ca()),
        static_cast<std::int64_t>(std::time(nullptr)));
  read_token_file(token_path(config));
}

ClientAccess::ClientAccess(const v1::DaemonConfig& config, const ListenAddress& listen)
    : config_(config),
      listen_(listen),
      certificates_(watch_certificates(config)),
      tokens_(token_path(config)),
      identifier_({.everybody_is_admin = config.insecure(),
                   .rules = RoleRules(config.access()),
                   .tokens = &tokens_}) {
  if (certificates_) {
    tls_ = tls_server_credentials(*certificates_);
    ticker_ = std::make_unique<Ticker>(kCertificateLook, [this] { certificates_->look(); });
  }
  open_socket();
  if (!config.access().socket().empty())
    other_socket_ =
        std::make_unique<UnixListener>(config.access().socket(), UnixListener::For::kOtherAccounts);
  find_facts();
  for (const std::string& note : notes()) spdlog::warn("{}", note);
}

void ClientAccess::add_note(std::string note) {
  spdlog::warn("{}", note);
  facts_.push_back(std::move(note));
}

void ClientAccess::open_socket() {
  const fs::path path = fs::path(config_.state_dir()) / "socket";
  try {
    own_socket_ = std::make_unique<UnixListener>(path, UnixListener::For::kOwnAccount);
  } catch (const Error& error) {
    // Who needs nothing but TCP does without: a folder's name may be long, and some file systems
    // have no sockets.
    if (is_nowhere(listen_) && config_.access().socket().empty()) throw;
    spdlog::info("there is no Unix socket: {}", error.what());
    if (tls_) facts_.push_back(error.what());
  }
}

void ClientAccess::find_facts() {
  const bool reachable = !is_loopback(listen_);
  if (config_.insecure())
    facts_.push_back(fmt::format("--insecure: whoever reaches {} is an admin, and calls are {}",
                                 listen_.text,
                                 tls_ ? "encrypted alone" : "neither encrypted nor authenticated"));
  if (!certificates_) return;
  if (is_nowhere(listen_)) return;
  const std::string host = parse_host_port(listen_.text, "--listen").host;
  const std::vector<std::string> names = certificates_->names();
  if (!fits_host(names, base::host_name()) && !fits_host(names, host))
    facts_.push_back(fmt::format(
        "the certificate is for {}, and neither for this host, {}, nor for {}: clients that go by "
        "these names refuse it",
        names.empty() ? "no name at all" : fmt::format("{}", fmt::join(names, ", ")),
        base::host_name(), host));
  if (reachable && !config_.insecure() && config_.access().tls_client_ca().empty() &&
      tokens_.empty())
    facts_.push_back(
        "nobody on another machine has a token or a certificate yet, so none is let in: meshloom "
        "token create NAME --role submitter makes a token");
}

std::vector<UnixListener*> ClientAccess::unix_listeners() {
  std::vector<UnixListener*> listeners;
  for (const auto* listener : {&own_socket_, &other_socket_})
    if (*listener) listeners.push_back(listener->get());
  return listeners;
}

std::string ClientAccess::socket_address() const {
  return own_socket_ ? "unix:" + own_socket_->path().string() : "";
}

std::vector<std::string> ClientAccess::notes() {
  std::vector<std::string> notes = facts_;
  if (certificates_)
    for (std::string& note : certificates_->notes()) notes.push_back(std::move(note));
  if (std::string trouble = tokens_.trouble(); !trouble.empty())
    notes.push_back(fmt::format("{}; the tokens of before are kept", trouble));
  return notes;
}

}  // namespace meshloom::control
