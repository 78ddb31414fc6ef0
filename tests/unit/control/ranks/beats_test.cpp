// SPDX-License-Identifier: Apache-2.0
// Heartbeats over real sockets: both ways, anew after a loss, and not with strangers.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "daemon/control/net/unix_listener.h"
#include "daemon/control/ranks/beat_client.h"
#include "daemon/control/ranks/beat_server.h"
#include "tests/support/loopback.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Counts what both ends tell.
class CountedBeats final : public BeatServer::Observer, public BeatClient::Observer {
 public:
  void heard(int rank, const v1::Heartbeat& beat, BeatServer::Clock::time_point) override {
    if (rank == 1) progress = static_cast<std::int64_t>(beat.progress());
    ++beats;
  }
  void look() override { ++ticks; }
  v1::Heartbeat beat() override {
    v1::Heartbeat beat;
    beat.set_progress(static_cast<std::uint64_t>(++sent));
    return beat;
  }
  void rank0_heard() override { ++answered; }
  void look_at_rank0() override { ++ticks; }

  std::atomic<int> beats{0}, sent{0}, answered{0}, ticks{0};
  std::atomic<std::int64_t> progress{0};
};

class BeatsTest : public ::testing::Test {
 protected:
  void serve(int port = 0) {
    server_.reset();
    server_ = std::make_unique<BeatServer>(
        BeatServer::Options{resolve_listen_address("127.0.0.1:" + std::to_string(port), "beats"),
                            "secret", 3},
        counted_);
    server_->start();
  }
  std::unique_ptr<BeatClient> client(int rank, const std::string& secret = "secret") {
    return std::make_unique<BeatClient>(
        BeatClient::Options{"127.0.0.1:" + std::to_string(server_->port()), secret, rank},
        counted_);
  }
  /// A stranger's connection.
  base::UniqueFd connect() {
    base::UniqueFd fd = test::connect_to_loopback(server_->port());
    EXPECT_TRUE(fd);
    return fd;
  }
  static bool is_closed_within(const base::UniqueFd& fd, std::chrono::milliseconds time) {
    pollfd watched{fd.get(), POLLIN, 0};
    char byte = 0;
    return ::poll(&watched, 1, static_cast<int>(time.count())) == 1 &&
           ::recv(fd.get(), &byte, 1, 0) <= 0;
  }
  template <typename Condition>
  static bool eventually(Condition condition) {
    const auto end = Clock::now() + 10s;
    while (!condition() && Clock::now() < end) std::this_thread::sleep_for(2ms);
    return condition();
  }

  CountedBeats counted_;
  std::unique_ptr<BeatServer> server_;
};

TEST_F(BeatsTest, GoBothWaysAndAnewAfterALoss) {
  serve();
  const auto one = client(1);
  EXPECT_TRUE(eventually(
      [&] { return counted_.progress >= 2 && counted_.answered >= 2 && counted_.ticks >= 4; }));
  const int port = server_->port();
  serve(port);
  const int before = counted_.beats;
  EXPECT_TRUE(eventually([&] { return counted_.beats > before + 1; })) << "over a new connection";
}

TEST_F(BeatsTest, GoOverAUnixSocketToo) {
  const std::string name = "meshloom-beats-" + std::to_string(::getpid());
  server_ = std::make_unique<BeatServer>(
      BeatServer::Options{resolve_listen_address(kNowhere, "beats"), "secret", 3, name}, counted_);
  server_->start();
  const BeatClient one({kAbstractScheme + name, "secret", 1}, counted_);
  EXPECT_TRUE(eventually([&] { return counted_.progress >= 2 && counted_.answered >= 2; }));
}

TEST_F(BeatsTest, GoOverTlsWhereBothEndsHaveTheKey) {
  const LaunchKey key = make_launch_key();
  server_ = std::make_unique<BeatServer>(
      BeatServer::Options{resolve_listen_address("127.0.0.1:0", "beats"), "secret", 3, "", key},
      counted_);
  server_->start();
  const std::string address = "127.0.0.1:" + std::to_string(server_->port());
  {
    const BeatClient plain({address, "secret", 1}, counted_);
    const BeatClient other({address, "secret", 2, make_launch_key()}, counted_);
    std::this_thread::sleep_for(4 * kHeartbeatPeriod);
    EXPECT_EQ(counted_.beats, 0);
  }
  const auto begin = Clock::now();
  const BeatClient one({address, "secret", 1, key}, counted_);
  EXPECT_TRUE(eventually([&] { return counted_.progress >= 1; }));
  EXPECT_LT(Clock::now() - begin, 1400ms) << "else it would be named as silent";
  EXPECT_TRUE(eventually([&] { return counted_.progress >= 3 && counted_.answered >= 3; }));
}

TEST_F(BeatsTest, StrangersAreNotHeardAndDoNotStay) {
  serve();
  const auto wrong = client(1, "secreT");
  const auto impossible = client(3);
  const auto own = client(0);
  for (const std::string& text :
       {std::string("\x0a\x00GET / HTTP", 12), std::string("\xff\xff", 2),
        std::string("\x08\x00secret 9", 10), std::string("\x06\x00secret", 8)}) {
    const base::UniqueFd stranger = connect();
    ASSERT_EQ(::send(stranger.get(), text.data(), text.size(), 0),
              static_cast<ssize_t>(text.size()));
    EXPECT_TRUE(is_closed_within(stranger, 2s)) << text;
  }
  const base::UniqueFd silent = connect();
  EXPECT_FALSE(is_closed_within(silent, 1s));
  EXPECT_TRUE(is_closed_within(silent, 10s));
  EXPECT_EQ(counted_.beats, 0);
  EXPECT_EQ(counted_.answered, 0);
  const base::UniqueFd known = connect();
  const std::string hello("\x08\x00secret 1\x02\x00\xff\xff", 14);
  ASSERT_EQ(::send(known.get(), hello.data(), hello.size(), 0), 14);
  EXPECT_TRUE(is_closed_within(known, 2s)) << "what it sends is no heartbeat";
}

TEST_F(BeatsTest, StrangersThatSendWithoutEndDelayNobody) {
  serve();
  const auto one = client(1);
  ASSERT_TRUE(eventually([&] { return counted_.progress >= 1; }));
  std::atomic<bool> ending{false};
  std::atomic<std::int64_t> bytes{0};
  std::vector<std::thread> strangers;
  for (int i = 0; i < 4; ++i)
    strangers.emplace_back([&, i] {
      // Messages of no bytes, and the length of one that never comes.
      const std::string piece =
          i % 2 == 0 ? std::string(1 << 16, '\0') : std::string("\x62\x00x", 3);
      while (!ending) {
        const base::UniqueFd fd = connect();
        ssize_t sent = 0;
        while (!ending && sent >= 0) {
          sent = ::send(fd.get(), piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
          if (sent > 0) bytes += sent;
          if (sent < 0 && errno == EAGAIN) sent = 0;
        }
      }
    });
  const int before = counted_.ticks;
  const auto progress = counted_.progress.load();
  std::this_thread::sleep_for(3s);
  // Six of the server's and five of the client's are due.
  EXPECT_GE(counted_.ticks - before, 8);
  EXPECT_GE(counted_.progress, progress + 4);
  ending = true;
  for (std::thread& stranger : strangers) stranger.join();
  EXPECT_GT(bytes, 1 << 16);
}

TEST_F(BeatsTest, OneCallTakesABoundedNumberOfBytes) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  const base::UniqueFd from{pair[0]};
  BeatConnection to{base::UniqueFd(pair[1])};
  const std::string zeros(50'000, '\0');
  ASSERT_EQ(::send(from.get(), zeros.data(), zeros.size(), 0), 50'000);
  std::size_t taken = 0;
  for (const std::size_t most : {std::size_t{100}, BeatConnection::kMostAtOnce}) {
    std::vector<std::string> messages;
    ASSERT_TRUE(to.receive(&messages, most));
    EXPECT_EQ(messages.size(), most / 2);
    taken += 2 * messages.size();
  }
  while (taken < zeros.size()) {
    std::vector<std::string> messages;
    ASSERT_TRUE(to.receive(&messages));
    taken += 2 * messages.size();
  }
  const std::string longer("\x63\x00", 2);
  ASSERT_EQ(::send(from.get(), longer.data(), longer.size(), 0), 2);
  std::vector<std::string> messages;
  EXPECT_FALSE(to.receive(&messages, 100)) << "99 bytes and their length are more";
}

TEST_F(BeatsTest, AFullSocketDelaysNobody) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  BeatConnection from{base::UniqueFd(pair[0])};
  BeatConnection to{base::UniqueFd(pair[1])};
  const std::string beat(1000, 'b');
  for (int i = 0; i < 10'000; ++i) ASSERT_TRUE(from.send(beat));
  std::vector<std::string> beats;
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(to.receive(&beats));
    ASSERT_TRUE(from.send("last"));
  }
  ASSERT_TRUE(to.receive(&beats));
  EXPECT_GT(beats.size(), 10u);
  EXPECT_EQ(beats.back(), "last");
  for (const auto& one : beats) ASSERT_TRUE(one == beat || one == "last") << one.size();
}

}  // namespace
}  // namespace meshloom::control
