// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/hold.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <type_traits>

namespace meshloom::control {
namespace {

static_assert(!std::is_copy_constructible_v<Hold> && std::is_nothrow_move_constructible_v<Hold>);

TEST(Hold, LetsGoOnceHoweverItIsMoved) {
  int releases = 0;
  {
    Hold first([&] { ++releases; });
    EXPECT_TRUE(first);
    Hold second = std::move(first);
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): what is left of it is what is tested
    Hold third;
    EXPECT_FALSE(third);
    third = std::move(second);
    EXPECT_TRUE(third);
    EXPECT_EQ(releases, 0);
    third.release();
    EXPECT_FALSE(third);
    EXPECT_EQ(releases, 1);
    third.release();
  }
  EXPECT_EQ(releases, 1);
}

TEST(Hold, LetsGoOfWhatItHasHeldWhereItTakesAnother) {
  std::string order;
  Hold hold([&] { order += "a"; });
  hold = Hold([&] { order += "b"; });
  EXPECT_EQ(order, "a");
  hold = Hold();
  EXPECT_EQ(order, "ab");
}

TEST(Hold, JoinsTwoOfWhichTheSecondGoesFirst) {
  std::string order;
  {
    const Hold both =
        Hold::join(Hold([&] { order += "a"; }),
                   Hold::join(Hold([&] { order += "b"; }), Hold([&] { order += "c"; })));
    EXPECT_TRUE(both);
    EXPECT_EQ(order, "");
  }
  EXPECT_EQ(order, "cba");
  EXPECT_FALSE(Hold::join(Hold(), Hold()));
  EXPECT_TRUE(Hold::join(Hold(), Hold([] {})));
  EXPECT_TRUE(Hold::join(Hold([] {}), Hold()));
}

TEST(Hold, DestroysWhatAReleaseHasCapturedBehindIt) {
  auto captured = std::make_shared<int>(0);
  const std::weak_ptr<int> known = captured;
  bool there = false;
  Hold hold([&there, known, owner = std::move(captured)] { there = !known.expired(); });
  hold.release();
  EXPECT_TRUE(there);
  EXPECT_TRUE(known.expired());
}

}  // namespace
}  // namespace meshloom::control
