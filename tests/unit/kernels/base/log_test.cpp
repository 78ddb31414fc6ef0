// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/log.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/support/temp_folder.h"

namespace meshloom {
namespace {

TEST(Log, OneLineKeepsTextAndSpellsOutTheRest) {
  EXPECT_EQ(one_line("plain, \"quoted\" ~"), "plain, \"quoted\" ~");
  EXPECT_EQ(one_line("a\nb\r\tc"), "a\\nb\\x0d\\x09c");
  EXPECT_EQ(one_line("\x1b[2J\x7f"), "\\x1b[2J\\x7f");
  EXPECT_EQ(one_line(std::string("\0x", 2)), "\\x00x");
  EXPECT_EQ(one_line("Z\u00fcrich \u2713 \U0001F600"), "Z\u00fcrich \u2713 \U0001F600");
  EXPECT_EQ(one_line("\u009b2J"), "\\xc2\\x9b2J") << "a control character of two bytes";
  EXPECT_EQ(one_line("\x9b\xff\xc3"), "\\x9b\\xff\\xc3");
  EXPECT_EQ(one_line("\xc0\x8a"), "\\xc0\\x8a") << "a newline in more bytes than it needs";
  EXPECT_EQ(one_line("\xed\xa0\x80\xe2\x82"), "\\xed\\xa0\\x80\\xe2\\x82");
  EXPECT_EQ(one_line(""), "");
}

TEST(Log, AMessageIsOneLineOfTheFile) {
  const test::TempFolder folder;
  const std::string file = (folder / "log").string();
  init_log({3, "info", file});
  spdlog::info("client says: {}",
               "x\n2030-01-01T00:00:00.000 [rank 0] critical all is lost\x1b[2J");
  spdlog::shutdown();
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_NE(text.find("[rank 3] info client says: x\\n2030-"), std::string::npos) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace meshloom
