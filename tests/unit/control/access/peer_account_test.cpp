// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/peer_account.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/unique_fd.h"
#include "daemon/control/net/listen_address.h"

namespace meshloom::control {
namespace {

using base::UniqueFd;

// Of a test that runs as root, so that it can be another account for once.
constexpr uid_t kOther = 54321;

/// A listener of this host, and connections to it.
class Loopback {
 public:
  explicit Loopback(const std::string& address)
      : address_(resolve_listen_address(address, "test").addresses[0]),
        listener_(::socket(address_.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    usable_ = ::bind(listener_.get(), address_.get(), address_.size) == 0 &&
              ::listen(listener_.get(), 16) == 0;
    address_.size = sizeof address_.storage;
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_.storage), &address_.size);
  }
  bool usable() const { return usable_; }
  UniqueFd connect() const {
    UniqueFd fd(::socket(address_.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), address_.get(), address_.size), 0);
    return fd;
  }
  UniqueFd accept() const {
    return UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

 private:
  SocketAddress address_;
  UniqueFd listener_;
  bool usable_ = false;
};

TEST(PeerAccount, IsThatOfTheProcessAtTheOtherEnd) {
  for (const char* address : {"127.0.0.1:0", "[::1]:0"}) {
    const Loopback loopback(address);
    if (!loopback.usable()) continue;  // a host without IPv6
    const UniqueFd client = loopback.connect();
    EXPECT_EQ(peer_account(loopback.accept().get()), ::geteuid()) << address;
  }
}

TEST(PeerAccount, OfASocketThatWasClosedNobodyIsKnown) {
  const Loopback loopback("127.0.0.1:0");
  UniqueFd client = loopback.connect();
  const UniqueFd connection = loopback.accept();
  client.reset();
  EXPECT_EQ(peer_account(connection.get()), std::nullopt)
      << "the kernel shows root for what no process has";
}

TEST(PeerAccount, OfAUnixSocketIsThatOfTheProcessToo) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd one(pair[0]), other(pair[1]);
  EXPECT_EQ(peer_account(one.get()), ::geteuid());
}

TEST(PeerAccount, AnotherAccountIsTold) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another account";
  const Loopback loopback("127.0.0.1:0");
  int hold[2];
  ASSERT_EQ(::pipe(hold), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(hold[1]);
    if (::setuid(kOther) != 0) ::_exit(1);
    const UniqueFd client = loopback.connect();
    char byte;
    ::_exit(::read(hold[0], &byte, 1) == 0 ? 0 : 1);
  }
  ::close(hold[0]);
  EXPECT_EQ(peer_account(loopback.accept().get()), kOther);
  ::close(hold[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(PeerAccount, HasANameAndGroups) {
  EXPECT_EQ(account_name(0), "root");
  EXPECT_EQ(account_name(4'000'000'123), "4000000123");
  EXPECT_TRUE(groups_of(4'000'000'123).empty());
  EXPECT_FALSE(groups_of(0).empty());
}

}  // namespace
}  // namespace meshloom::control
