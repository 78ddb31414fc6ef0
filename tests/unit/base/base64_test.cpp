// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/base64.h"

#include <gtest/gtest.h>

namespace meshloom::base {
namespace {

TEST(Base64, DecodesTheExamplesOfItsSpecification) {
  EXPECT_EQ(decode_base64(""), "");
  EXPECT_EQ(decode_base64("Zg=="), "f");
  EXPECT_EQ(decode_base64("Zm8="), "fo");
  EXPECT_EQ(decode_base64("Zm9v"), "foo");
  EXPECT_EQ(decode_base64("Zm9vYg=="), "foob");
  EXPECT_EQ(decode_base64("Zm9vYmE="), "fooba");
  EXPECT_EQ(decode_base64("Zm9vYmFy"), "foobar");
  EXPECT_EQ(decode_base64("+/8A"), std::string("\xFB\xFF\0", 3));
}

TEST(Base64, TakesNothingElse) {
  for (const char* text : {"Zg", "Zg=", "Z", "Zm9v\n", " Zm9v", "Zm 9", "Zm9v====", "Zm=v", "Zm-_",
                           "====", "\n\n\n\n", "    ", "Zm9\n"})
    EXPECT_EQ(decode_base64(text), std::nullopt) << text;
}

}  // namespace
}  // namespace meshloom::base
