// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/utf8.h"

#include <gtest/gtest.h>

namespace meshloom::base {
namespace {

TEST(Utf8, TextStaysAndTheRestIsEscaped) {
  EXPECT_EQ(printable_text("größe 数 🙂"), "größe 数 🙂");
  EXPECT_EQ(printable_text("a\xff"
                           "b\xc3"),
            "a\\xffb\\xc3");
  EXPECT_EQ(printable_text("\x1b[31m\tx\x7f"), "\\x1b[31m\\x09x\\x7f");
  EXPECT_EQ(printable_text("\xc2\x9b"
                           "31m"),
            "\\xc2\\x9b31m")
      << "a control of one character";
  EXPECT_EQ(printable_text("a\nb"), "a\nb");
  EXPECT_EQ(printable_text("a\nb", 100, false), "a\\x0ab");
  EXPECT_EQ(printable_text("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable_text("\xc0\xaf"), "\\xc0\\xaf") << "an overlong slash";
}

TEST(Utf8, IsCutBetweenCharacters) {
  EXPECT_EQ(printable_text("aß", 2), "a");
  EXPECT_EQ(printable_text("aß", 3), "aß");
  EXPECT_EQ(printable_text("a\x01", 4), "a");
  EXPECT_TRUE(is_utf8(printable_text(std::string(100, '\xff'), 50)));
}

TEST(Utf8, KnowsWhatIsText) {
  for (const char* good : {"", "a", "ß", "数", "🙂", "\x01"}) EXPECT_TRUE(is_utf8(good)) << good;
  for (const char* bad : {"\xff", "\xc3", "\xe6\x95", "\xf4\x90\x80\x80", "a\x80"})
    EXPECT_FALSE(is_utf8(bad));
}

}  // namespace
}  // namespace meshloom::base
