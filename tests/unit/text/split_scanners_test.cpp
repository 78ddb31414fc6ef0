// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/split_scanners.h"

#include <gtest/gtest.h>

#include <random>

#include "daemon/text/regex.h"
#include "daemon/text/utf8.h"

namespace meshloom::text {
namespace {

class SplitScanner : public testing::TestWithParam<SplitPattern> {
 protected:
  /// The ends of the pieces by the scanner and by the regular expression.
  void expect_same(const std::string& text) {
    std::vector<std::size_t> scanned, matched;
    std::size_t end = 0;
    scan(GetParam(), {text, true}, [&](const Piece& piece) {
      EXPECT_EQ(piece.first, end == 0);
      scanned.push_back(end += piece.text.size());
    });
    std::size_t from = 0;
    regex_.for_each_match(text, [&](std::size_t begin, std::size_t stop) {
      EXPECT_EQ(begin, from) << "the pattern leaves something out";
      matched.push_back(from = stop);
    });
    EXPECT_EQ(from, text.size());
    ASSERT_EQ(scanned, matched) << text;
  }

  Regex regex_{regular_expression(GetParam())};
};

TEST_P(SplitScanner, FindsWhatTheRegularExpressionFindsInRandomTexts) {
  const char32_t alphabet[] = {' ',    ' ',    '\n',   '\r',   '\t',    0xA0, 0x2003, '\'',
                               '\'',   's',    'S',    'l',    'L',     'v',  'e',    'R',
                               't',    'm',    'd',    0x17F,  'a',     0xE9, 0x4E2D, '1',
                               '2',    0x0663, 0x2167, '.',    '!',     '_',  0x301,  0x1F600,
                               0x180E, 0x200B, 0x85,   0x2028, 0x1D7CE, 0xAA, 0x345,  0};
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (auto length = random() % 20; length > 0; --length)
      append_utf8(alphabet[random() % std::size(alphabet)], text);
    expect_same(text);
    if (HasFatalFailure()) return;
  }
}

TEST_P(SplitScanner, FindsWhatTheRegularExpressionFindsAroundEveryCharacter) {
  std::string text;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    for (const char* before : {"a", " ", "1", "'", "\n"}) {
      text += before;
      append_utf8(c, text);
    }
    if (c % 0x1000 != 0xFFF) continue;
    expect_same(text);
    if (HasFatalFailure()) return;
    text.clear();
  }
}

TEST_P(SplitScanner, FindsWhatTheRegularExpressionFindsInLongRuns) {
  // Longer than PCRE2's own limits allow.
  constexpr std::size_t kLong = 12'000'000;
  for (const std::string run : {" ", "a", "\n", "!"})
    for (const char* tail : {"", "x"}) {
      std::string text;
      text.reserve(kLong + 1);
      while (text.size() < kLong) text += run;
      expect_same(text + tail);
      if (HasFatalFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Patterns, SplitScanner,
                         testing::Values(SplitPattern::kGpt2, SplitPattern::kLlama3,
                                         SplitPattern::kQwen2));

}  // namespace
}  // namespace meshloom::text
