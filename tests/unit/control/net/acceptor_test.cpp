// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/acceptor.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <mutex>

#include "daemon/control/host/descriptor_limit.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using base::UniqueFd;

UniqueFd connect_to(int port, const char* from = "127.0.0.1") {
  const auto target = resolve_listen_address("127.0.0.1:" + std::to_string(port), "to");
  const auto source = resolve_listen_address(std::string(from) + ":0", "from");
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) throw std::runtime_error("no socket");
  if (::bind(fd.get(), source.addresses[0].get(), source.addresses[0].size) != 0 ||
      ::connect(fd.get(), target.addresses[0].get(), target.addresses[0].size) != 0)
    throw std::runtime_error("no connection");
  return fd;
}

/// True where the other end closes within the timeout.
bool is_closed(const UniqueFd& fd, std::chrono::milliseconds timeout) {
  pollfd watched{fd.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&watched, 1, static_cast<int>(timeout.count())) == 1 &&
         ::recv(fd.get(), &byte, 1, 0) <= 0;
}

template <typename Condition>
bool eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + 10s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

/// Holds what it gets until it is told to close it.
class AcceptorTest : public ::testing::Test {
 protected:
  void start(int most) {
    acceptor_ = std::make_unique<Acceptor>(resolve_listen_address("127.0.0.1:0", "listen"), most);
    acceptor_->start([this](int, UniqueFd connection, std::optional<uid_t>) {
      const std::lock_guard lock(mutex_);
      given_.push_back(std::move(connection));
    });
  }
  std::size_t given() {
    const std::lock_guard lock(mutex_);
    return given_.size();
  }
  void close_all() {
    const std::lock_guard lock(mutex_);
    given_.clear();
  }

  std::mutex mutex_;
  std::vector<UniqueFd> given_;
  std::unique_ptr<Acceptor> acceptor_;
};

TEST_F(AcceptorTest, OneAddressGetsItsShareAndOthersTheRest) {
  start(8);
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 6; ++i) clients.push_back(connect_to(acceptor_->port()));
  ASSERT_TRUE(eventually([&] { return given() == 6; }));
  EXPECT_TRUE(is_closed(connect_to(acceptor_->port()), 10s)) << "above the share of one address";
  for (int i = 0; i < 2; ++i) clients.push_back(connect_to(acceptor_->port(), "127.0.0.2"));
  ASSERT_TRUE(eventually([&] { return given() == 8; }));
  EXPECT_TRUE(is_closed(connect_to(acceptor_->port(), "127.0.0.3"), 10s)) << "above the cap";
  for (const auto& client : clients) EXPECT_FALSE(is_closed(client, 0ms));
  close_all();
  std::this_thread::sleep_for(50ms);
  const UniqueFd late = connect_to(acceptor_->port());
  EXPECT_TRUE(eventually([&] { return given() == 1; })) << "places of closed connections are free";
}

TEST_F(AcceptorTest, AcceptsAgainAfterTheDescriptorsRanOut) {
  start(1000);
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  // The client's ends count too.
  const rlimit low{128, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<UniqueFd> clients;
  bool exhausted = false;
  try {
    for (int i = 0; i < 128; ++i) clients.push_back(connect_to(acceptor_->port()));
  } catch (const std::runtime_error&) {
    exhausted = true;
  }
  EXPECT_TRUE(exhausted);
  EXPECT_LT(given(), 128u);
  clients.clear();
  close_all();
  ::setrlimit(RLIMIT_NOFILE, &before);
  std::this_thread::sleep_for(50ms);
  close_all();
  const UniqueFd late = connect_to(acceptor_->port());
  EXPECT_TRUE(eventually([&] { return given() >= 1; }));
  EXPECT_FALSE(is_closed(late, 50ms));
}

TEST_F(AcceptorTest, NamesThePortThatIsTaken) {
  start(4);
  try {
    Acceptor second(
        resolve_listen_address("127.0.0.1:" + std::to_string(acceptor_->port()), "listen"), 4);
    FAIL() << "two listen on one port";
  } catch (const FailedPrecondition& error) {
    EXPECT_EQ(error.reason(), "CANNOT_LISTEN");
    EXPECT_NE(std::string(error.what()).find("the port is taken"), std::string::npos);
  }
}

TEST(DescriptorLimit, IsRaisedAndKeepsSomeForFiles) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit low{400, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(raise_descriptor_limit(), static_cast<int>(std::min<rlim_t>(before.rlim_max, 65'536)));
  const int promised = 10;
  EXPECT_LE(connection_capacity(promised) + promised + 256, raise_descriptor_limit());
  EXPECT_THROW(connection_capacity(70'000), FailedPrecondition);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST(ListenAddress, IsCheckedByWhatItMeans) {
  EXPECT_EQ(parse_host_port("127.0.0.1:0", "x").port, 0);
  EXPECT_EQ(parse_host_port("[::1]:7420", "x").host, "[::1]");
  for (const char* bad : {"", "7420", ":7420", "a:", "a:b", "a:70000", "a:-1"})
    EXPECT_THROW(parse_host_port(bad, "x"), InvalidArgument) << bad;
  for (const char* own :
       {"127.0.0.1:0", "127.8.9.10:0", "[::1]:0", "localhost:0", "[::ffff:127.0.0.1]:0"})
    EXPECT_TRUE(is_loopback(resolve_listen_address(own, "x"))) << own;
  for (const char* open : {"0.0.0.0:0", "[::]:0", "10.1.2.3:0", "[::ffff:10.1.2.3]:0"})
    EXPECT_FALSE(is_loopback(resolve_listen_address(open, "x"))) << open;
  EXPECT_THROW(resolve_listen_address("127.0.0.1.invalid:0", "x"), FailedPrecondition)
      << "a name that begins like a loopback address";
}

TEST(Clients, AreAddressesOrNetworks) {
  EXPECT_EQ(client_of_peer("ipv4:127.0.0.1:4711"), "127.0.0.1");
  EXPECT_EQ(client_of_peer("ipv6:%5B::1%5D:4711"), "::/64");
  EXPECT_EQ(client_of_peer("ipv6:[2001:db8:1:2:3:4:5:6]:1"), "2001:db8:1:2::/64");
  EXPECT_EQ(client_of_peer("ipv6:%5B::ffff:10.0.0.7%5D:9"), "10.0.0.7");
  EXPECT_EQ(client_of_peer("unix:"), "unix");
  for (const char* other : {"", "ipv4:", "dns:x:1"})
    EXPECT_EQ(client_of_peer(other), "unknown") << other;
}

}  // namespace
}  // namespace meshloom::control
