// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/key_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/cli/exit_code.h"

namespace meshloom::cli {
namespace {

using ::testing::Pair;

TEST(KeyValue, IsCutAtTheFirstEquals) {
  EXPECT_THAT(split_key_value("a=b"), Pair("a", "b"));
  EXPECT_THAT(split_key_value("a=b=c"), Pair("a", "b=c"));
  EXPECT_THAT(split_key_value("a="), Pair("a", ""));
}

TEST(KeyValue, WithoutKeyOrEqualsIsRefused) {
  for (const char* text : {"", "a", "=b"}) {
    try {
      split_key_value(text);
      ADD_FAILURE() << text << " was taken";
    } catch (const CliError& error) {
      EXPECT_EQ(error.code(), kUsage);
      EXPECT_EQ(error.what(), "\"" + std::string(text) + "\" is not of the form KEY=VALUE");
    }
  }
}

}  // namespace
}  // namespace meshloom::cli
