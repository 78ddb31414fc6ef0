// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/grapheme.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace meshloom::text {
namespace {

std::vector<std::string> clusters_of(std::string_view text) {
  std::vector<std::string> clusters;
  while (!text.empty()) {
    clusters.emplace_back(text.substr(0, grapheme_length(text)));
    text.remove_prefix(clusters.back().size());
  }
  return clusters;
}

using Clusters = std::vector<std::string>;

TEST(Graphemes, AreWhatReadersTakeForACharacter) {
  EXPECT_EQ(clusters_of("ab\r\n\rc\n\r"), (Clusters{"a", "b", "\r\n", "\r", "c", "\n", "\r"}));
  EXPECT_EQ(clusters_of("e\u0301\u0323x\u0301"), (Clusters{"e\u0301\u0323", "x\u0301"}));
  EXPECT_EQ(clusters_of("\n\u0301\u0301"), (Clusters{"\n", "\u0301\u0301"})) << "after a control";
  EXPECT_EQ(clusters_of("\u0600a\u0600"), (Clusters{"\u0600a", "\u0600"})) << "what is prepended";
}

TEST(Graphemes, OfHangulAreSyllables) {
  EXPECT_EQ(clusters_of("\u1100\u1161\u11A8\u1100"), (Clusters{"\u1100\u1161\u11A8", "\u1100"}));
  EXPECT_EQ(clusters_of("\uAC00\u11A8\uAC01\u11A8\uAC01\u1161"),
            (Clusters{"\uAC00\u11A8", "\uAC01\u11A8", "\uAC01", "\u1161"}));
}

TEST(Graphemes, OfPictographsAndFlags) {
  const std::string family = "\U0001F468\u200D\U0001F469\u200D\U0001F467";
  EXPECT_EQ(clusters_of(family + "\u00A9"), (Clusters{family, "\u00A9"}));
  EXPECT_EQ(clusters_of("\u00A9\uFE0F\u200D\u00A9a\u200D\u00A9"),
            (Clusters{"\u00A9\uFE0F\u200D\u00A9", "a\u200D", "\u00A9"}));
  const std::string de = "\U0001F1E9\U0001F1EA", fr = "\U0001F1EB\U0001F1F7";
  EXPECT_EQ(clusters_of(de + fr + "\U0001F1E9"), (Clusters{de, fr, "\U0001F1E9"}));
}

TEST(Graphemes, OfIndicScriptsKeepLinkedConsonantsTogether) {
  EXPECT_EQ(clusters_of("\u0915\u094D\u0937\u0915"), (Clusters{"\u0915\u094D\u0937", "\u0915"}));
  EXPECT_EQ(clusters_of("\u0915\u094D\u200C\u0937"), (Clusters{"\u0915\u094D\u200C", "\u0937"}));
}

}  // namespace
}  // namespace meshloom::text
