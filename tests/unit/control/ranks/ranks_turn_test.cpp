// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/ranks_turn.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "tests/support/eventually.h"

namespace meshloom::control {
namespace {

/// Gives up, and has its place, as the test says.
class AskedWaiter final : public RanksTurn::Waiter {
 public:
  explicit AskedWaiter(std::function<bool()> given_up, std::function<RanksTurn::Place()> place = {})
      : given_up_(std::move(given_up)), place_(std::move(place)) {}
  bool gives_up() override { return given_up_(); }
  RanksTurn::Place place() override { return place_ ? place_() : Waiter::place(); }

 private:
  const std::function<bool()> given_up_;
  const std::function<RanksTurn::Place()> place_;
};

TEST(RanksTurn, WhoDoesNotWaitGetsTheRanksOnlyIfTheyAreFree) {
  RanksTurn turn;
  Hold hold = turn.try_acquire("a");
  EXPECT_TRUE(hold);
  EXPECT_EQ(turn.holder(), "a");
  EXPECT_FALSE(turn.try_acquire("b"));
  EXPECT_EQ(turn.ahead_of("b"), std::vector<std::string>{"a"}) << "it left no place in the queue";
  hold.release();
  EXPECT_EQ(turn.holder(), "");
  turn.set_open(false);
  EXPECT_FALSE(turn.try_acquire("b"));
  EXPECT_EQ(turn.holder(), "");
  turn.set_open(true);
  // Who waits comes before who does not.
  bool asked = false;
  AskedWaiter waiter([&] {
    asked = true;
    EXPECT_FALSE(turn.try_acquire("b"));
    return true;
  });
  EXPECT_FALSE(turn.acquire("c", waiter));
  EXPECT_TRUE(asked);
  EXPECT_TRUE(turn.try_acquire("b"));
  EXPECT_EQ(turn.holder(), "") << "nobody holds them";
}

TEST(RanksTurn, SaysSinceWhenSomebodyWaits) {
  RanksTurn turn;
  Hold held = turn.try_acquire("holder");
  ASSERT_TRUE(held);
  EXPECT_FALSE(turn.waited("waiting"));
  std::atomic<bool> over = false;
  AskedWaiter waiter([&] { return over.load(); });
  auto waiting = std::async(std::launch::async, [&] { return turn.acquire("waiting", waiter); });
  ASSERT_TRUE(test::eventually([&] { return turn.waited("waiting").has_value(); }));
  const auto before = *turn.waited("waiting");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_GE(*turn.waited("waiting"), before + std::chrono::milliseconds(20));
  EXPECT_FALSE(turn.waited("holder"));
  over = true;
  EXPECT_FALSE(waiting.get());
  EXPECT_FALSE(turn.waited("waiting"));
}

TEST(RanksTurn, WhoWaitsToBeWokenAsksNothingMeanwhile) {
  RanksTurn turn;
  Hold held = turn.try_acquire("holder");
  ASSERT_TRUE(held);
  std::atomic<int> asked = 0;
  std::atomic<bool> over = false;
  AskedWaiter waiter([&] {
    ++asked;
    return over.load();
  });
  auto waiting =
      std::async(std::launch::async, [&] { return turn.acquire_when_woken("waiting", waiter); });
  auto leaving =
      std::async(std::launch::async, [&] { return turn.acquire_when_woken("leaving", waiter); });
  EXPECT_TRUE(test::eventually([&] { return turn.ahead_of("nobody").size() == 3; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const int before = asked;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(asked, before);
  held.release();
  EXPECT_TRUE(test::eventually([&] { return !turn.holder().empty(); }));
  const std::string first = turn.holder();
  over = true;
  turn.wake();
  EXPECT_TRUE((first == "waiting" ? waiting : leaving).get());
  EXPECT_FALSE((first == "waiting" ? leaving : waiting).get());
}

TEST(RanksTurn, WhoComesToBeFirstMovesWithoutLeavingTheQueue) {
  using Names = std::vector<std::string>;
  RanksTurn turn;
  Hold held = turn.try_acquire("holder");
  ASSERT_TRUE(held);
  std::atomic<bool> first = false, over = false;
  const auto given_up = [&] { return over.load(); };
  AskedWaiter last(given_up);
  AskedWaiter mover(given_up,
                    [&] { return first ? RanksTurn::Place::kFirst : RanksTurn::Place::kLast; });
  auto other = std::async(std::launch::async, [&] { return turn.acquire("other", last); });
  EXPECT_TRUE(test::eventually([&] {
    return turn.ahead_of("nobody") == Names{"holder", "other"};
  }));
  auto moving = std::async(std::launch::async, [&] { return turn.acquire("moving", mover); });
  EXPECT_TRUE(test::eventually([&] {
    return turn.ahead_of("nobody") == Names{"holder", "other", "moving"};
  }));
  first = true;
  EXPECT_TRUE(test::eventually([&] {
    EXPECT_EQ(turn.ahead_of("nobody").size(), 3u);
    return turn.ahead_of("other") == Names{"holder", "moving"};
  }));
  first = false;
  EXPECT_TRUE(test::eventually([&] {
    return turn.ahead_of("moving") == Names{"holder", "other"};
  }));
  first = true;
  EXPECT_TRUE(test::eventually([&] { return turn.ahead_of("moving") == Names{"holder"}; }));
  held.release();
  EXPECT_TRUE(test::eventually([&] { return turn.holder() == "moving"; }));
  Hold moved = moving.get();
  EXPECT_TRUE(moved);
  moved.release();
  EXPECT_TRUE(test::eventually([&] { return turn.holder() == "other"; }));
  over = true;
  EXPECT_TRUE(other.get());
}

}  // namespace
}  // namespace meshloom::control
