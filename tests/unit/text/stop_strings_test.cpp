// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/base/philox.h"

namespace meshloom::text {
namespace {

/// The text before the first string that is complete, looked for character by character.
std::string before_first(const std::string& text, const std::vector<std::string>& strings) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : strings)
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0)
        longest = std::max(longest, stop.size());
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

/// What comes out, a text for each piece and one for the rest.
std::vector<std::string> told(const std::vector<std::string>& strings,
                              const std::vector<std::string>& pieces) {
  StopStrings stops(strings);
  std::vector<std::string> out;
  for (const std::string& piece : pieces) out.push_back(stops.add(piece));
  out.push_back(stops.finish());
  return out;
}

using Texts = std::vector<std::string>;

TEST(StopStrings, HoldsBackWhatMayBeTheBeginningOfOne) {
  EXPECT_EQ(told({"END"}, {"aE", "N", "Eb", "EN", "Dc"}), (Texts{"a", "", "ENEb", "", "", ""}));
  EXPECT_EQ(told({"END"}, {"aEN"}), (Texts{"a", "EN"})) << "what is held is told at the end";
  EXPECT_EQ(told({"END"}, {"END", "more"}), (Texts{"", "", ""})) << "at the first piece";
  EXPECT_EQ(told({}, {"a", ""}), (Texts{"a", "", ""}));
  EXPECT_EQ(told({"\n\n"}, {"a\n", "\n\nb"}), (Texts{"a", "", ""}));
  EXPECT_EQ(told({"aab"}, {"a", "a", "a", "b"}), (Texts{"", "", "a", "", ""}));
}

TEST(StopStrings, TheFirstThatIsCompleteCountsAndOfSeveralTheLongest) {
  EXPECT_EQ(told({"bc", "abcd"}, {"xabcd"}), (Texts{"xa", ""}));
  EXPECT_EQ(told({"END", "THE END"}, {"x THE", " END"}), (Texts{"x ", "", ""}));
  EXPECT_EQ(told({"THE END", "END"}, {"x THX END"}), (Texts{"x THX ", ""}));
}

TEST(StopStrings, StringsOfSeveralBytesACharacter) {
  EXPECT_EQ(told({"é!"}, {"caf", "é", "?", "é", "!"}), (Texts{"caf", "", "é?", "", "", ""}));
}

TEST(StopStrings, DividedInAnyWayTheTextIsTheSame) {
  const PhiloxStream random{3, 7};
  std::uint64_t at = 0;
  const auto below = [&](std::uint64_t end) { return random.at(at++) % end; };
  const auto word = [&](std::uint64_t length) {
    std::string made;
    while (made.size() < length) made.push_back(static_cast<char>('a' + below(2)));
    return made;
  };
  for (int round = 0; round < 3000; ++round) {
    Texts strings;
    for (std::uint64_t i = below(4); i > 0; --i) strings.push_back(word(1 + below(6)));
    const std::string text = word(below(24));
    StopStrings stops(strings);
    std::string out;
    for (std::size_t done = 0; done < text.size();) {
      const std::size_t length = 1 + below(5);
      out += stops.add(std::string_view(text).substr(done, length));
      done += length;
    }
    out += stops.finish();
    ASSERT_EQ(out, before_first(text, strings)) << text;
    ASSERT_EQ(stops.stopped(), out.size() < text.size()) << text;
  }
}

}  // namespace
}  // namespace meshloom::text
