// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/call_identity.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "daemon/control/net/grpc_server.h"
#include "daemon/control/net/tls_credentials.h"
#include "daemon/control/services/gate.h"
#include "daemon/control/services/token_service.h"
#include "tests/support/certificates.h"
#include "tests/support/eventually.h"
#include "tests/support/reason_of.h"
#include "tests/support/temp_folder.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// There are none.
class NoObjects final : public ObjectOwners {
 public:
  std::optional<Ownership> find(ObjectKind, const std::string&) const override {
    return std::nullopt;
  }
  bool is_repeat(const RequestKey&) const override { return false; }
};

/// A server, and clients that ask it who they are.
class CallIdentityTest : public ::testing::Test {
 protected:
  ~CallIdentityTest() override {
    if (server_) server_->shutdown();
  }

  void serve(CallerIdentifier::Options who, GrpcServerOptions options = {}) {
    who.tokens = &tokens_;
    identifier_ = std::make_unique<CallerIdentifier>(std::move(who));
    service_.set_gate(gate_);
    if (options.listen.text.empty())
      options.listen = resolve_listen_address("127.0.0.1:0", "listen");
    options.services = {&service_};
    options.identifier = identifier_.get();
    server_ = std::make_unique<GrpcServer>(options);
  }
  /// With this certificate, and clients known by that of `client_ca`.
  void serve_over_tls(const test::Certified& own, const test::Certified* client_ca,
                      CallerIdentifier::Options who = {}) {
    put("cert.pem", own.certificate);
    put("key.pem", own.key);
    if (client_ca != nullptr) put("client_ca.pem", client_ca->certificate);
    v1::AccessConfig config;
    config.set_tls_cert((folder_ / "cert.pem").string());
    config.set_tls_key((folder_ / "key.pem").string());
    if (client_ca != nullptr) config.set_tls_client_ca((folder_ / "client_ca.pem").string());
    watch_ = std::make_unique<CertificateWatch>(config, folder_ / "tls");
    GrpcServerOptions options;
    options.tls = tls_server_credentials(*watch_);
    serve(std::move(who), options);
  }
  void put(const std::string& name, const std::string& text) const {
    folder_.write(name, text);
    ::chmod((folder_ / name).c_str(), 0600);
  }

  std::string address() const { return "localhost:" + std::to_string(server_->port()); }
  static std::shared_ptr<grpc::ChannelCredentials> tls(const test::Certified& ca,
                                                       const test::Certified& own = {}) {
    return grpc::SslCredentials({ca.certificate, own.key, own.certificate});
  }
  /// "NAME ROLE", or the code of what the call ends with.
  std::string who_am_i(const std::string& address,
                       const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                       const std::multimap<std::string, std::string>& metadata = {}) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub =
        v1::TokenService::NewStub(grpc::CreateCustomChannel(address, credentials, arguments));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
    v1::WhoAmIResponse response;
    const grpc::Status status = stub->WhoAmI(&context, {}, &response);
    refusal_ = response.refusal();
    return status.ok() ? response.name() + " " + response.role()
                       : fmt::format("code {}", static_cast<int>(status.error_code()));
  }
  std::string who_am_i(const std::multimap<std::string, std::string>& metadata = {}) {
    return who_am_i(address(), grpc::InsecureChannelCredentials(), metadata);
  }

  test::TempFolder folder_;
  TokenStore tokens_{folder_ / "tokens"};
  const NoObjects objects_;
  const Gate gate_{{.owners = &objects_}};
  TokenServiceImpl service_{tokens_};
  std::unique_ptr<CallerIdentifier> identifier_;
  std::unique_ptr<CertificateWatch> watch_;
  std::unique_ptr<GrpcServer> server_;
  std::string refusal_;  ///< of the last WhoAmI
};

const std::string kUnavailable = "code 14";

TEST_F(CallIdentityTest, OverLoopbackTheOwnAccountIsTheAdmin) {
  serve({});
  EXPECT_EQ(who_am_i(), "admin admin");
}

TEST_F(CallIdentityTest, WhatAClientSendsOfItselfCountsForNothing) {
  serve({});
  const auto issued = tokens_.create("alice", Role::kViewer, std::nullopt);
  const std::multimap<std::string, std::string> forged = {
      {"authorization", "Bearer " + issued.token},
      {kProvenNameKey, "admin"},
      {kProvenRoleKey, "admin"},
      {kProvenRefusalKey, ""}};
  EXPECT_EQ(who_am_i(forged), "alice viewer");
  EXPECT_EQ(who_am_i({{"authorization", "Bearer wrong"}, {kProvenRoleKey, "admin"}}), " nobody");
}

TEST_F(CallIdentityTest, OverAUnixSocketTheKernelSaysWhoItIs) {
  UnixListener own(folder_ / "socket", UnixListener::For::kOwnAccount);
  UnixListener others(folder_ / "others", UnixListener::For::kOtherAccounts);
  GrpcServerOptions options;
  options.listen = resolve_listen_address(kNowhere, "listen");
  options.unix_listeners = {&own, &others};
  serve({}, options);
  EXPECT_EQ(server_->port(), 0);
  for (const char* name : {"socket", "others"})
    EXPECT_EQ(who_am_i("unix:" + (folder_ / name).string(), grpc::InsecureChannelCredentials()),
              "admin admin")
        << name;
  const auto issued = tokens_.create("alice", Role::kViewer, std::nullopt);
  EXPECT_EQ(who_am_i("unix:" + own.path().string(), grpc::InsecureChannelCredentials(),
                     {{"authorization", "Bearer " + issued.token}}),
            "alice viewer");
}

TEST_F(CallIdentityTest, OverTlsACertificateOrATokenSaysWhoItIs) {
  const test::Certified ca = test::make_certificate({});
  const test::Certified own =
      test::make_certificate({.names = "DNS:localhost,IP:127.0.0.1", .by = &ca});
  const test::Certified alice =
      test::make_certificate({.names = "DNS:alice,DNS:root,email:a@x.org", .by = &ca});
  const test::Certified nameless = test::make_certificate({.by = &ca});
  v1::AccessConfig rules;
  rules.add_roles()->set_name("alice");
  rules.mutable_roles(0)->set_role("submitter");
  serve_over_tls(own, &ca, {.rules = RoleRules(rules)});
  const auto issued = tokens_.create("bob", Role::kViewer, std::nullopt);
  const std::multimap<std::string, std::string> token = {
      {"authorization", "Bearer " + issued.token}};
  EXPECT_EQ(who_am_i(address(), tls(ca, alice)), "alice submitter");
  EXPECT_EQ(who_am_i(address(), tls(ca)), " nobody") << "loopback is no proof over TLS";
  EXPECT_EQ(who_am_i(address(), tls(ca), token), "bob viewer");
  EXPECT_EQ(who_am_i(address(), tls(ca, nameless)), " nobody");
  EXPECT_THAT(refusal_, HasSubstr("no subject alternative name"));
  EXPECT_EQ(who_am_i(), kUnavailable) << "in the clear";
}

TEST_F(CallIdentityTest, ACertificateThatIsNotValidMakesNoConnection) {
  constexpr long kOneDay = 24 * 3600;
  const test::Certified ca = test::make_certificate({}), other_ca = test::make_certificate({});
  const test::Certified own = test::make_certificate({.names = "DNS:localhost", .by = &ca});
  serve_over_tls(own, &ca);
  const test::Certified wrong[] = {
      test::make_certificate({.names = "DNS:a", .by = &other_ca}),
      test::make_certificate(
          {.names = "DNS:a", .begins_in = -2 * kOneDay, .ends_in = -kOneDay, .by = &ca}),
      test::make_certificate(
          {.names = "DNS:a", .begins_in = kOneDay, .ends_in = 2 * kOneDay, .by = &ca})};
  for (const test::Certified& certified : wrong)
    EXPECT_EQ(who_am_i(address(), tls(ca, certified)), kUnavailable);
  EXPECT_EQ(who_am_i(address(), tls(other_ca)), kUnavailable) << "the daemon's is of another CA";
  EXPECT_EQ(who_am_i("127.0.0.1:" + std::to_string(server_->port()), tls(ca)), kUnavailable)
      << "the daemon's has another name";
  EXPECT_EQ(who_am_i(address(), tls(ca)), " nobody");
}

TEST_F(CallIdentityTest, ANewCertificateIsTakenWhileCallsGoOn) {
  const test::Certified first = test::make_certificate({.names = "DNS:localhost"});
  const test::Certified second = test::make_certificate({.names = "DNS:localhost"});
  serve_over_tls(first, nullptr);
  const auto held = v1::TokenService::NewStub(grpc::CreateChannel(address(), tls(first)));
  const auto held_works = [&] {
    grpc::ClientContext context;
    v1::WhoAmIResponse response;
    return held->WhoAmI(&context, {}, &response).ok();
  };
  EXPECT_TRUE(held_works());
  put("key.pem", second.key);
  watch_->look();
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(who_am_i(address(), tls(first)), " nobody") << "a key that does not fit is not taken";
  put("cert.pem", second.certificate);
  watch_->look();
  EXPECT_TRUE(test::eventually([&] { return who_am_i(address(), tls(second)) == " nobody"; }));
  EXPECT_EQ(who_am_i(address(), tls(first)), kUnavailable);
  EXPECT_TRUE(held_works()) << "a connection that stands is left alone";
}

TEST_F(CallIdentityTest, TokensAreForAdmins) {
  serve({});
  const auto issued = tokens_.create("alice", Role::kSubmitter, std::nullopt);
  const auto stub =
      v1::TokenService::NewStub(grpc::CreateChannel(address(), grpc::InsecureChannelCredentials()));
  const auto list_as = [&](const std::string& token) {
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    v1::ListTokensResponse response;
    return stub->ListTokens(&context, {}, &response).error_code();
  };
  EXPECT_EQ(list_as(""), grpc::StatusCode::OK);
  EXPECT_EQ(list_as(issued.token), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(list_as("wrong"), grpc::StatusCode::UNAUTHENTICATED);
}

TEST(UnixListener, APathThatIsTooLongOrTakenIsRefusedByName) {
  const test::TempFolder folder;
  const fs::path longest =
      folder / std::string(kLongestSocketPath - folder.path().string().size() - 1, 'a');
  const UnixListener taken(longest, UnixListener::For::kOwnAccount);
  EXPECT_EQ(longest.string().size(), 107u);
  struct stat status {};
  ASSERT_EQ(::stat(longest.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(test::reason_of([&] { UnixListener(longest, UnixListener::For::kOwnAccount); }),
            "CANNOT_LISTEN");
  const fs::path longer = longest.string() + "a";
  try {
    UnixListener(longer, UnixListener::For::kOwnAccount);
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.reason(), "SOCKET_PATH_TOO_LONG");
    EXPECT_THAT(error.what(), HasSubstr("108 bytes"));
    EXPECT_THAT(error.what(), HasSubstr(folder.path().string()));
  }
  folder.write("file", "");
  EXPECT_EQ(test::reason_of([&] { UnixListener(folder / "file", UnixListener::For::kOwnAccount); }),
            "CANNOT_LISTEN");
}

TEST(UnixListener, TakesThePlaceOfASocketThatWasLeftBehindAndLeavesNone) {
  const test::TempFolder folder;
  const fs::path path = folder / "socket";
  {
    UnixListener first(path, UnixListener::For::kOwnAccount);
    fs::rename(path, folder / "kept");
  }
  fs::rename(folder / "kept", path);  // As a daemon leaves it that was killed.
  { const UnixListener second(path, UnixListener::For::kOtherAccounts); }
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace meshloom::control
