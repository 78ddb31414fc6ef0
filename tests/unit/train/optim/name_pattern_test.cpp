// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/optim/name_pattern.h"

#include <gtest/gtest.h>

namespace meshloom::train {
namespace {

TEST(NamePattern, MatchesComponentByComponent) {
  EXPECT_TRUE(matches_pattern("transformer.h.*.ln_1.weight", "transformer.h.11.ln_1.weight"));
  EXPECT_TRUE(matches_pattern("*", "weight"));
  EXPECT_TRUE(matches_pattern("a.b", "a.b"));
  EXPECT_FALSE(matches_pattern("transformer.h.*.ln_1.weight", "transformer.h.11.ln_2.weight"));
  EXPECT_FALSE(matches_pattern("transformer.*", "transformer.h.0"));
  EXPECT_FALSE(matches_pattern("*", "a.b"));
  EXPECT_FALSE(matches_pattern("a.b.c", "a.b"));
  EXPECT_FALSE(matches_pattern("a.b", "a.b.c"));
  EXPECT_FALSE(matches_pattern("a.h*", "a.h1"));
  EXPECT_FALSE(matches_pattern("", "a"));
}

}  // namespace
}  // namespace meshloom::train
