// SPDX-License-Identifier: Apache-2.0
#include "planner/name_pattern.h"

#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

TEST(NamePattern, MatchesComponentByComponent) {
  EXPECT_TRUE(matches_pattern("transformer.h.*.ln_1.weight", "transformer.h.11.ln_1.weight"));
  EXPECT_TRUE(matches_pattern("*", "weight"));
  EXPECT_TRUE(matches_pattern("a.b", "a.b"));
  EXPECT_TRUE(matches_pattern("a.h*", "a.h1"));
  EXPECT_FALSE(matches_pattern("transformer.h.*.ln_1.weight", "transformer.h.11.ln_2.weight"));
  EXPECT_FALSE(matches_pattern("transformer.*", "transformer.h.0"));
  EXPECT_FALSE(matches_pattern("*", "a.b"));
  EXPECT_FALSE(matches_pattern("a.b.c", "a.b"));
  EXPECT_FALSE(matches_pattern("a.b", "a.b.c"));
}

TEST(NamePattern, RootIsTheEmptyPattern) {
  EXPECT_TRUE(matches_pattern("", ""));
  EXPECT_FALSE(matches_pattern("", "a"));
  EXPECT_FALSE(matches_pattern("*", ""));
}

TEST(NamePattern, WildcardsInsideComponents) {
  EXPECT_TRUE(matches_pattern("net?", "net1"));
  EXPECT_FALSE(matches_pattern("net?", "net"));
  EXPECT_TRUE(matches_pattern("*_proj", "q_proj"));
  EXPECT_TRUE(matches_pattern("*a*b", "xaaybzb"));
  EXPECT_FALSE(matches_pattern("*a*b", "xaaybz"));
  EXPECT_TRUE(matches_pattern("layers.*.net[1]", "layers.0.net1"));
  EXPECT_TRUE(matches_pattern("net[1-2]", "net2"));
  EXPECT_FALSE(matches_pattern("net[1-2]", "net3"));
  EXPECT_TRUE(matches_pattern("[qkv]_proj", "k_proj"));
  EXPECT_FALSE(matches_pattern("[!qk]_proj", "k_proj"));
  EXPECT_TRUE(matches_pattern("a[-x]", "a-"));
}

TEST(NamePattern, MalformedSetsAreRefused) {
  for (const char* bad : {"net[1", "net[]", "a.net[3-1]"}) {
    try {
      matches_pattern(bad, "other");
      FAIL() << bad;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(bad), std::string::npos) << error.what();
    }
  }
}

TEST(NamePattern, ExactBeatsPatternAndMoreLiteralsWin) {
  const std::vector<std::string> patterns = {"h.*.mlp", "h.3.*", "h.*.*", "h.3.mlp"};
  EXPECT_EQ(best_pattern(patterns, "h.3.mlp"), 3U);
  EXPECT_EQ(best_pattern(patterns, "h.2.mlp"), 0U);
  EXPECT_EQ(best_pattern(patterns, "h.3.attn"), 1U);
  EXPECT_EQ(best_pattern(patterns, "h.2.attn"), 2U);
  EXPECT_EQ(best_pattern(patterns, "ln_f"), std::nullopt);
}

TEST(NamePattern, TiesAreErrorsThatNameBoth) {
  const std::vector<std::string> patterns = {"h.*.fc1", "h.1.fc?"};
  EXPECT_EQ(best_pattern(patterns, "h.2.fc1"), 0U);
  try {
    best_pattern(patterns, "h.1.fc1");
    FAIL();
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("h.*.fc1"), std::string::npos);
    EXPECT_NE(text.find("h.1.fc?"), std::string::npos);
  }
  const std::vector<std::string> with_exact = {"h.*.fc1", "h.1.fc?", "h.1.fc1"};
  EXPECT_EQ(best_pattern(with_exact, "h.1.fc1"), 2U);
}

TEST(NamePattern, NearMissesAreNamedNearestFirst) {
  const std::vector<std::string> names = {"", "transformer.h.0.attn", "transformer.h.0.mlp.c_fc",
                                          "transformer.h.0.mlp.c_proj", "lm_head"};
  const auto near = near_misses("transformer.h.*.mlp.c_pro", names);
  ASSERT_FALSE(near.empty());
  EXPECT_EQ(near.front(), "transformer.h.0.mlp.c_proj");
  EXPECT_NE(unmatched_text("transformer.h.*.mlp.c_pro", names).find("c_proj"), std::string::npos);
}

}  // namespace
}  // namespace meshloom::planner
