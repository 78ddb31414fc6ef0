// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/text_mode.h"

#include <gtest/gtest.h>

namespace meshloom::text {
namespace {

TEST(TextMode, ReadsAsPythonDoes) {
  const auto read = [](const std::string& bytes) { return read_text_mode(bytes); };
  EXPECT_EQ(read(""), "");
  EXPECT_EQ(read("a\nb"), "a\nb");
  EXPECT_EQ(read("a\r\nb\r\n"), "a\nb\n");
  EXPECT_EQ(read("a\rb\r"), "a\nb\n");
  EXPECT_EQ(read("\r\r\n\n\r"), "\n\n\n\n");
  EXPECT_EQ(read("\n\r"), "\n\n");
  EXPECT_EQ(read("\xEF\xBB\xBF"), "");
  EXPECT_EQ(read("\xEF\xBB\xBF\xEF\xBB\xBFx"), "\xEF\xBB\xBFx") << "one is the mark";
  EXPECT_EQ(read("x\xEF\xBB\xBF"), "x\xEF\xBB\xBF");
  EXPECT_EQ(read("\xEF\xBB"), "\xEF\xBB");
  EXPECT_EQ(read("\xFF\r\n"), "\xFF\n") << "what is no UTF-8 stays";
  // Other ends of lines that Unicode knows are characters to Python as well.
  EXPECT_EQ(read("a\x0B\x0C\xC2\x85\xE2\x80\xA8"), "a\x0B\x0C\xC2\x85\xE2\x80\xA8");
}

TEST(TextMode, IsTheSameWhereverAFileIsDivided) {
  const std::string bytes =
      "\xEF\xBB\xBF"
      "a\r\n\r\rb\n\r\n\r";
  const std::string whole = read_text_mode(bytes);
  EXPECT_EQ(whole, "a\n\n\nb\n\n\n");
  for (std::size_t first = 3; first <= bytes.size(); ++first)
    for (std::size_t second = first; second <= bytes.size(); ++second) {
      TextModeReader reader;
      std::string text;
      reader.read(bytes.substr(0, first), text);
      reader.read(bytes.substr(first, second - first), text);
      reader.read(bytes.substr(second), text);
      EXPECT_EQ(text, whole) << first << " " << second;
    }
}

}  // namespace
}  // namespace meshloom::text
