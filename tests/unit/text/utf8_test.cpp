// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/utf8.h"

#include <gtest/gtest.h>

#include "daemon/text/normal_form.h"

namespace meshloom::text {
namespace {

TEST(Utf8, ReplacesWhatIsNoUtf8AsPythonDoes) {
  // Each right side is what bytes.decode('utf-8', 'replace') gives.
  const std::string r = "\xEF\xBF\xBD";
  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"a\xC3\xA9", "a\xC3\xA9"},
      {"\xFF", r},
      {"\x80\x80", r + r},
      {"\xE2\x82", r},
      {"\xE2\x82"
       "a",
       r + "a"},
      {"\xF0\x9F\x98", r},
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", r + "\xF0\x9F\x98\x80"},
      {"\xED\xA0\x80", r + r + r},
      {"\xC0\xAF", r + r},
      {"\xF4\x90\x80\x80", r + r + r + r},
      {"\xC3", r},
      {std::string("\0\xE1\x80z", 4), std::string("\0", 1) + r + "z"}};
  for (const auto& [bytes, expected] : cases) {
    std::string storage;
    EXPECT_EQ(valid_utf8(bytes, storage), expected);
  }
}

TEST(Utf8, GoesThroughAllCharacters) {
  std::string text;
  for (const char32_t c : {0x0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10000, 0x10FFFF})
    append_utf8(c, text);
  const char* at = text.data();
  for (const char32_t c : {0x0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10000, 0x10FFFF})
    EXPECT_EQ(next_char(at), c);
  std::string_view rest = text;
  for (const char32_t c : {0x10FFFF, 0x10000, 0xFFFF, 0x800, 0x7FF, 0x80, 0x7F, 0x0})
    EXPECT_EQ(pop_char(rest), c);
  EXPECT_TRUE(rest.empty());
}

TEST(NormalForms, OrderMarksAndComposeWhatNothingBlocks) {
  // d, dot above, dot below: in the order of their classes, then with the letter.
  EXPECT_EQ(to_nfd("d\xCC\x87\xCC\xA3"), "d\xCC\xA3\xCC\x87");
  EXPECT_EQ(to_nfc("d\xCC\x87\xCC\xA3"), "\xE1\xB8\x8D\xCC\x87");
  // Hangul by arithmetic, both ways.
  EXPECT_EQ(to_nfd("\xEA\xB0\x81"), "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8");
  EXPECT_EQ(to_nfc("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"), "\xEA\xB0\x81");
  // A mark at the very front, and one behind a character below U+00C0.
  EXPECT_EQ(to_nfc("\xCC\x81"
                   "e\xCC\x81"),
            "\xCC\x81\xC3\xA9");
  EXPECT_EQ(to_nfc("x=\xCC\xB8y"), "x\xE2\x89\xA0y");
  // Singletons stay apart, as does what is excluded from composition.
  EXPECT_EQ(to_nfc("\xE2\x84\xAB"), "\xC3\x85");
  EXPECT_EQ(to_nfc("\xE0\xA5\x98"), "\xE0\xA4\x95\xE0\xA4\xBC");
}

}  // namespace
}  // namespace meshloom::text
