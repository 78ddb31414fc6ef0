// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/launch_tls.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>

#include "daemon/base/unique_fd.h"

namespace meshloom::control {
namespace {

using base::UniqueFd;
using Outcome = LaunchTls::Outcome;

/// Two ends of a nonblocking connection.
struct Ends {
  Ends() {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    server = UniqueFd(pair[0]);
    client = UniqueFd(pair[1]);
  }
  UniqueFd server, client;
};

/// What the server reads of what the client sends, or "ended".
std::string pass(LaunchTls& server, LaunchTls& client, const std::string& text) {
  bool sent = false;
  for (int turn = 0; turn < 20; ++turn) {
    std::size_t count = 0;
    if (!sent) {
      const Outcome outcome = client.write(text.data(), text.size(), &count);
      if (outcome == Outcome::kEnded) return "ended";
      sent = outcome == Outcome::kDone;
    }
    char bytes[64];
    const Outcome outcome = server.read(bytes, sizeof bytes, &count);
    if (outcome == Outcome::kEnded) return "ended";
    if (outcome == Outcome::kDone) return {bytes, count};
  }
  return "nothing";
}

TEST(LaunchTls, WhoHasTheKeyIsHeardAndWhoHasAnotherIsNot) {
  const LaunchKey key = make_launch_key(), other = make_launch_key();
  EXPECT_NE(key.key, other.key);
  {
    const Ends ends;
    LaunchTls server(key, LaunchTls::Side::kServer, ends.server.get());
    LaunchTls client(key, LaunchTls::Side::kClient, ends.client.get());
    EXPECT_EQ(pass(server, client, "a beat"), "a beat");
    EXPECT_EQ(pass(client, server, "an answer"), "an answer");
  }
  const Ends ends;
  LaunchTls server(key, LaunchTls::Side::kServer, ends.server.get());
  LaunchTls client(other, LaunchTls::Side::kClient, ends.client.get());
  EXPECT_EQ(pass(server, client, "a beat"), "ended");
}

TEST(LaunchTls, WhatIsNoTlsEndsIt) {
  const Ends ends;
  LaunchTls server(make_launch_key(), LaunchTls::Side::kServer, ends.server.get());
  const std::string zeros(1000, '\0');
  ASSERT_EQ(::send(ends.client.get(), zeros.data(), zeros.size(), 0), 1000);
  char bytes[16];
  std::size_t count = 0;
  EXPECT_EQ(server.read(bytes, sizeof bytes, &count), Outcome::kEnded);
}

TEST(LaunchTls, WhatIsSentDoesNotStandOnTheWire) {
  const Ends ends;
  const LaunchKey key = make_launch_key();
  LaunchTls client(key, LaunchTls::Side::kClient, ends.client.get());
  std::size_t count = 0;
  const std::string secret = "the secret of the launch";
  EXPECT_EQ(client.write(secret.data(), secret.size(), &count), Outcome::kWait);
  char bytes[4096];
  const ssize_t size = ::recv(ends.server.get(), bytes, sizeof bytes, 0);
  ASSERT_GT(size, 0);
  EXPECT_EQ(std::string(bytes, static_cast<std::size_t>(size)).find(secret), std::string::npos);
}

}  // namespace
}  // namespace meshloom::control
