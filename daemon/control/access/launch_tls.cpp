// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/launch_tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

struct Free {
  void operator()(BIO* bio) const { BIO_free_all(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* session) const { SSL_free(session); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

Owned<BIO> text_reader(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Owned<SSL_CTX> context_of(const LaunchKey& launch) {
  Owned<SSL_CTX> context(SSL_CTX_new(TLS_method()));
  const Owned<X509> certificate(
      PEM_read_bio_X509(text_reader(launch.certificate).get(), nullptr, nullptr, nullptr));
  const Owned<EVP_PKEY> key(
      PEM_read_bio_PrivateKey(text_reader(launch.key).get(), nullptr, nullptr, nullptr));
  check_internal(
      context && certificate && key &&
          SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) == 1 &&
          SSL_CTX_use_certificate(context.get(), certificate.get()) == 1 &&
          SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1 &&
          X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), certificate.get()) == 1,
      "OpenSSL does not take the key of the launch");
  // The other end is known by having the same key, which no name could tell better.
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  return context;
}

// Pieces that one call takes of the socket, so that no peer keeps its thread.
constexpr int kMostPieces = 16;

}  // namespace

/// Bytes pass through memory, since OpenSSL itself would write to a socket that is closed and have
/// the process end by a signal.
struct LaunchTls::Session {
  Owned<SSL_CTX> context;
  Owned<SSL> ssl;
  BIO* in = nullptr;  ///< of ssl
  BIO* out = nullptr;
  int socket = -1;
  std::string unsent;

  /// False if the connection has ended.
  bool send_out() {
    char piece[4096];
    for (int count = 0; (count = BIO_read(out, piece, sizeof piece)) > 0;)
      unsent.append(piece, static_cast<std::size_t>(count));
    while (!unsent.empty()) {
      const ssize_t sent = ::send(socket, unsent.data(), unsent.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return errno == EAGAIN;
      unsent.erase(0, static_cast<std::size_t>(sent));
    }
    return true;
  }
  /// kDone: there is more to read.
  Outcome take_in() {
    char piece[4096];
    ssize_t count = 0;
    do count = ::recv(socket, piece, sizeof piece, 0);
    while (count < 0 && errno == EINTR);
    if (count < 0) return errno == EAGAIN ? Outcome::kWait : Outcome::kEnded;
    if (count == 0) return Outcome::kEnded;
    return BIO_write(in, piece, static_cast<int>(count)) == count ? Outcome::kDone
                                                                  : Outcome::kEnded;
  }
  /// Repeats an operation of OpenSSL as long as it asks for bytes and there are some.
  template <typename Operation>
  Outcome go_on(const Operation& operation) {
    for (int piece = 0; piece < kMostPieces; ++piece) {
      ERR_clear_error();
      const int result = operation();
      const int error = result == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl.get(), result);
      ERR_clear_error();
      if (!send_out()) return Outcome::kEnded;
      if (error == SSL_ERROR_NONE) return Outcome::kDone;
      if (error != SSL_ERROR_WANT_READ) return Outcome::kEnded;
      if (const Outcome taken = take_in(); taken != Outcome::kDone) return taken;
    }
    return Outcome::kWait;
  }
};

LaunchTls::LaunchTls(const LaunchKey& key, Side side, int socket)
    : session_(std::make_unique<Session>()) {
  Session& session = *session_;
  session.context = context_of(key);
  session.ssl.reset(SSL_new(session.context.get()));
  session.in = BIO_new(BIO_s_mem());
  session.out = BIO_new(BIO_s_mem());
  session.socket = socket;
  check_internal(session.ssl && session.in != nullptr && session.out != nullptr,
                 "OpenSSL makes no session");
  SSL_set_bio(session.ssl.get(), session.in, session.out);
  if (side == Side::kServer)
    SSL_set_accept_state(session.ssl.get());
  else
    SSL_set_connect_state(session.ssl.get());
}

LaunchTls::~LaunchTls() = default;
LaunchTls::LaunchTls(LaunchTls&&) noexcept = default;
LaunchTls& LaunchTls::operator=(LaunchTls&&) noexcept = default;

LaunchTls::Outcome LaunchTls::read(char* data, std::size_t size, std::size_t* count) {
  return session_->go_on([&] { return SSL_read_ex(session_->ssl.get(), data, size, count); });
}

LaunchTls::Outcome LaunchTls::write(const char* data, std::size_t size, std::size_t* count) {
  if (!session_->send_out()) return Outcome::kEnded;
  if (!session_->unsent.empty()) return Outcome::kWait;
  return session_->go_on([&] { return SSL_write_ex(session_->ssl.get(), data, size, count); });
}

}  // namespace meshloom::control
