// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/ranks_turn.h"

#include <gtest/gtest.h>

namespace meshloom::control {
namespace {

TEST(RanksTurn, WhoDoesNotWaitGetsTheRanksOnlyIfTheyAreFree) {
  RanksTurn turn;
  EXPECT_TRUE(turn.try_acquire("a"));
  EXPECT_EQ(turn.holder(), "a");
  EXPECT_FALSE(turn.try_acquire("b"));
  EXPECT_EQ(turn.ahead_of("b"), std::vector<std::string>{"a"}) << "it left no place in the queue";
  turn.release("a");
  turn.set_open(false);
  EXPECT_FALSE(turn.try_acquire("b"));
  EXPECT_EQ(turn.holder(), "");
  turn.set_open(true);
  // Who waits comes before who does not.
  bool asked = false;
  EXPECT_FALSE(turn.acquire("c", [&] {
    asked = true;
    EXPECT_FALSE(turn.try_acquire("b"));
    return true;
  }));
  EXPECT_TRUE(asked);
  EXPECT_TRUE(turn.try_acquire("b"));
}

}  // namespace
}  // namespace meshloom::control
