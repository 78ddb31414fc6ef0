// SPDX-License-Identifier: Apache-2.0
// Who may connect: certificates, tokens, accounts and sockets of a real daemon, by the program
// meshloom.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/e2e/daemon_fixture.h"
#include "tests/support/certificates.h"
#include "tests/support/scoped_variable.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class AccessE2e : public DaemonTest {
 protected:
  std::string put(const std::string& name, const std::string& text) const {
    const std::string path = write_text(name, text);
    ::chmod(path.c_str(), 0600);
    return path;
  }
  /// A daemon over TLS, which `meshloom` then reaches by its Unix socket.
  void start_over_tls(const Arguments& more = {}) {
    Arguments flags{"--tls-cert",      put("cert.pem", own_.certificate),
                    "--tls-key",       put("key.pem", own_.key),
                    "--tls-client-ca", put("ca.pem", ca_.certificate)};
    flags.insert(flags.end(), more.begin(), more.end());
    start(2, flags);
    const std::string log = daemon_log();
    const std::size_t at = log.find("serves on 127.0.0.1:");
    ASSERT_NE(at, std::string::npos) << log;
    remote_ = log.substr(at + 10, log.find(' ', at + 10) - at - 10);
  }
  /// The program against the daemon's port.
  CommandResult remotely(const Arguments& arguments) const {
    Arguments all{test::program("meshloom"), "--address", remote_};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_command(all, 60s);
  }
  /// What `meshloom` itself says of a token that it makes, and a file with it.
  std::string make_token(const std::string& name, const std::string& role) const {
    const std::string file = (folder_ / (name + ".token")).string();
    const CommandResult made = client({"token", "create", name, "--role", role, "--out", file});
    EXPECT_EQ(made.exit_code, 0) << made.errors;
    return file;
  }
  /// Files and processes in which one of the secrets stands.
  std::vector<std::string> places_of(const std::vector<std::string>& secrets) const {
    std::vector<fs::path> places;
    for (const auto& entry : fs::recursive_directory_iterator(state_))
      if (entry.is_regular_file() && entry.path().string().find("/tls/") == std::string::npos)
        places.push_back(entry.path());
    places.push_back(folder_ / "daemon.log");
    for (const pid_t pid : pids_)
      for (const char* file : {"cmdline", "environ"})
        places.push_back(fs::path("/proc") / std::to_string(pid) / file);
    std::vector<std::string> found;
    for (const fs::path& place : places)
      for (const std::string& secret : secrets)
        if (read_file(place).find(secret) != std::string::npos) found.push_back(place.string());
    return found;
  }

  const test::ScopedVariable config_{"XDG_CONFIG_HOME", folder_ / "config"};
  test::Certified ca_ = test::make_certificate({});
  test::Certified own_ =
      test::make_certificate({.names = "DNS:localhost,IP:127.0.0.1", .by = &ca_});
  std::string remote_;
};

TEST_F(AccessE2e, OverLoopbackNothingChangesForTheDaemonsOwnAccount) {
  start();
  EXPECT_THAT(client({"whoami"}).output, HasSubstr("admin, admin"));
  EXPECT_THAT(client({"status"}).output, Not(HasSubstr("access:")));
  address_ = "unix:" + (state_ / "socket").string();
  EXPECT_THAT(client({"whoami"}).output, HasSubstr("admin, admin"));
  shut_down();
  EXPECT_FALSE(fs::exists(state_ / "socket"));
}

TEST_F(AccessE2e, AnotherAccountHasTheRoleThatItIsGiven) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another account";
  // The folders of the test are the daemon's own, a socket for others is elsewhere.
  const std::string open = "/tmp/meshloom-" + std::to_string(::getpid());
  fs::create_directory(open);
  fs::permissions(open, fs::perms::all);
  start(1, {"--role", "@nogroup=viewer", "--socket", open + "/socket"});
  const auto as_nobody = [&](const std::string& address) {
    const fs::path program = open + "/meshloom";
    if (!fs::exists(program)) fs::copy_file(test::program("meshloom"), program);
    return run_command({"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                        program.string(), "--address", address, "whoami"},
                       60s);
  };
  for (const std::string& address : {address_, "unix:" + open + "/socket"}) {
    EXPECT_THAT(as_nobody(address).output, HasSubstr("nobody, viewer")) << address;
    const CommandResult own = client({"whoami"});
    EXPECT_THAT(own.output, HasSubstr("admin, admin"));
  }
  EXPECT_EQ(as_nobody("unix:" + (state_ / "socket").string()).exit_code, 3) << "in a 0700 folder";
  shut_down();
  start(1);
  const CommandResult refused = as_nobody(address_);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.output, HasSubstr("has no role"));
  shut_down();
  fs::remove_all(open);
}

TEST_F(AccessE2e, OverTlsATokenOrACertificateLetsAClientIn) {
  start_over_tls({"--role", "carol=submitter"});
  EXPECT_THAT(address_, HasSubstr("unix:")) << "which needs no certificate";
  EXPECT_THAT(client({"whoami"}).output, HasSubstr("admin, admin"));
  const std::string ca = (folder_ / "ca.pem").string(), token = make_token("alice", "viewer");
  EXPECT_THAT(remotely({"--ca", ca, "--access-token-file", token, "whoami"}).output,
              HasSubstr("alice, viewer"));
  const test::Certified carol = test::make_certificate({.names = "DNS:carol", .by = &ca_});
  EXPECT_THAT(remotely({"--ca", ca, "--cert", put("carol.pem", carol.certificate), "--key",
                        put("carol.key", carol.key), "whoami"})
                  .output,
              HasSubstr("carol, submitter"));
  const CommandResult nobody = remotely({"--ca", ca, "whoami"});
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.output, HasSubstr("shows no token"));
  EXPECT_EQ(remotely({"--ca", ca, "token", "list"}).exit_code, 1);
  // In the clear, and to a daemon of another CA, there is no connection.
  EXPECT_EQ(remotely({"whoami"}).exit_code, 3);
  const test::Certified other = test::make_certificate({});
  const CommandResult wrong = remotely({"--ca", put("other.pem", other.certificate), "whoami"});
  EXPECT_EQ(wrong.exit_code, 3);
  EXPECT_THAT(wrong.errors, HasSubstr("not of the CA")) << wrong.errors;
  // Files by address need no option.
  const fs::path by_address = folder_ / "config/meshloom" / remote_;
  fs::create_directories(by_address);
  fs::copy(token, by_address / "token");
  fs::permissions(by_address / "token", fs::perms::owner_read);
  fs::copy(ca, by_address / "ca.pem");
  EXPECT_THAT(remotely({"whoami"}).output, HasSubstr("alice, viewer"));
  fs::permissions(by_address / "token", fs::perms::owner_read | fs::perms::others_read);
  EXPECT_THAT(remotely({"whoami"}).errors, HasSubstr("others may read it"));
  EXPECT_EQ(client({"token", "revoke", "alice"}).exit_code, 0);
  EXPECT_EQ(remotely({"--ca", ca, "--access-token-file", token, "whoami"}).exit_code, 1);
  shut_down();
}

TEST_F(AccessE2e, SecretsAreWhereTheyBelongAndNowhereElse) {
  start_over_tls();
  const std::string ca = (folder_ / "ca.pem").string();
  const std::string file = make_token("alice", "submitter");
  std::string token = read_file(file);
  token.pop_back();
  const std::string printed = client({"token", "create", "bob", "--role", "viewer"}).output;
  std::vector<std::string> secrets = {token, token.substr(token.rfind('_') + 1),
                                      printed.substr(0, printed.find('\n')),
                                      own_.key.substr(40, 40)};
  EXPECT_EQ(remotely({"--ca", ca, "--access-token-file", file, "whoami"}).exit_code, 0);
  const std::string wrong = "mlt_" + std::string(16, '0') + "_" + std::string(64, 'f');
  secrets.push_back(wrong);
  for (int i = 0; i < 7; ++i)
    EXPECT_EQ(remotely({"--ca", ca, "--access-token-file", put("wrong", wrong + "\n"), "whoami"})
                  .exit_code,
              1);
  submit({.steps = 2, .checkpoint_interval = 2}, "job");
  EXPECT_TRUE(reaches("job", "succeeded"));
  EXPECT_THAT(places_of(secrets), IsEmpty());
  shut_down();
  EXPECT_THAT(places_of(secrets), IsEmpty());
}

TEST_F(AccessE2e, ANewCertificateDisturbsNoUpload) {
  start_over_tls();
  const std::string ca = (folder_ / "ca.pem").string(), token = make_token("alice", "submitter");
  const std::string file = write_text("large.bin", std::string(200 << 20, 'x'));
  Process upload({test::program("meshloom"), "--address", remote_, "--ca", ca,
                  "--access-token-file", token, "upload", file},
                 folder_ / "upload.log");
  own_ = test::make_certificate({.names = "DNS:localhost,IP:127.0.0.1", .by = &ca_});
  put("cert.pem", own_.certificate);
  put("key.pem", own_.key);
  EXPECT_TRUE(eventually(
      20s, [&] { return daemon_log().find("a new certificate is in use") != std::string::npos; }));
  EXPECT_EQ(upload.wait(60s), 0) << read_file(folder_ / "upload.log");
  EXPECT_EQ(remotely({"--ca", ca, "--access-token-file", token, "whoami"}).exit_code, 0);
  shut_down();
}

TEST_F(AccessE2e, WhatCannotServeEndsTheStartWithItsName) {
  const test::Certified old =
      test::make_certificate({.begins_in = -7200, .ends_in = -3600, .by = &ca_});
  const test::Certified other = test::make_certificate({});
  const std::string cert = put("c.pem", own_.certificate), key = put("k.pem", own_.key);
  const std::string open_key = put("open.pem", own_.key);
  ::chmod(open_key.c_str(), 0644);
  const std::string open_tokens = write_text("tokens", "{}");
  ::chmod(open_tokens.c_str(), 0644);
  const std::pair<Arguments, const char*> cases[] = {
      {{"--tls-cert", cert, "--tls-key", put("o.pem", other.key)}, "is not that of"},
      {{"--tls-cert", put("old.pem", old.certificate), "--tls-key", put("ok.pem", old.key)},
       "has expired on"},
      {{"--tls-cert", cert, "--tls-key", open_key}, "others may read it"},
      {{"--tls-cert", cert, "--tls-key", (folder_ / "none.pem").string()}, "none.pem"},
      {{"--tokens", open_tokens}, "others may read or write it"},
      {{"--tokens", folder_.string()}, "it is a folder"},
      {{"--socket", "/tmp/" + std::string(120, 'a')}, "a Unix socket's has at most 107"},
  };
  for (const auto& [flags, expected] : cases) {
    Arguments all{"--listen", "127.0.0.1:0"};
    all.insert(all.end(), flags.begin(), flags.end());
    const auto daemon = launch(1, all, "refused.log");
    EXPECT_NE(daemon->wait(30s).value_or(0), 0) << expected;
    EXPECT_THAT(read_file(folder_ / "refused.log"), HasSubstr(expected));
  }
}

TEST_F(AccessE2e, WithoutTcpTheSocketServes) {
  start(1, {"--listen", "none"});
  EXPECT_THAT(address_, HasSubstr("unix:"));
  EXPECT_THAT(tcp_listeners(pids_[0]), IsEmpty());
  EXPECT_THAT(client({"whoami"}).output, HasSubstr("admin, admin"));
  shut_down();
}

TEST_F(AccessE2e, InsecureIsSaidAtTheStartAndInTheStatus) {
  start(1, {"--listen", "0.0.0.0:0", "--insecure"});
  EXPECT_THAT(daemon_log(), HasSubstr("whoever reaches 0.0.0.0:0 is an admin"));
  EXPECT_THAT(client({"status"}).output, HasSubstr("access: --insecure"));
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
