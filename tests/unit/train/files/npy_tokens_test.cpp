// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/npy_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"

namespace meshloom::train {
namespace {

using ::testing::HasSubstr;

/// A file of version 1.0, as numpy writes it.
std::string npy(const std::string& header, const std::string& numbers) {
  const auto size = static_cast<char>(header.size());
  return std::string("\x93NUMPY\x01\0", 8) + size + '\0' + header + numbers;
}

TEST(NpyTokens, TellTypeNumberAndTheFirst) {
  const test::TempFolder folder;
  const NpyTokens shorts(
      folder.write("a.npy", npy("{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }\n",
                                std::string("\x01\0\xFF\xFF\x07\0", 6))));
  EXPECT_EQ(shorts.dtype(), "<u2");
  EXPECT_EQ(shorts.size(), 3);
  EXPECT_EQ(shorts.read_first(2), (std::vector<std::int64_t>{1, 65535}));
  EXPECT_EQ(shorts.read_first(9).size(), 3u);
  const NpyTokens table(folder.write(
      "b.npy", npy("{'descr': '|i1', 'fortran_order': False, 'shape': (2, 2), }\n", "\xFF\1\2\3")));
  EXPECT_EQ(table.size(), 4);
  EXPECT_EQ(table.read_first(4), (std::vector<std::int64_t>{-1, 1, 2, 3}));
  const NpyTokens floats(folder.write(
      "c.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n", "0123")));
  EXPECT_EQ(floats.size(), 1);
  EXPECT_FALSE(floats.is_readable());
}

TEST(NpyTokens, RefuseWhatIsNone) {
  const test::TempFolder folder;
  const auto why = [&](const std::string& bytes) -> std::string {
    try {
      NpyTokens(folder.write("x.npy", bytes)).read_first(10);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "taken";
  };
  EXPECT_THAT(why("no array at all"), HasSubstr("does not begin as one"));
  EXPECT_THAT(why("short"), HasSubstr("missing"));
  EXPECT_THAT(why(npy("{'descr': [('a', '<u2')], 'shape': (3,)}", "")), HasSubstr("no descr"));
  EXPECT_THAT(why(npy("{'descr': '<u2', 'shape': (-3,)}", "")), HasSubstr("the shape (-3,)"));
  EXPECT_THAT(why(npy("{'descr': '<u2', 'shape': (99999999999, 99999999999)}", "")),
              HasSubstr("the shape"));
  EXPECT_THAT(why(npy("{'descr': '<u2', 'shape': (3,)}", "12")), HasSubstr("missing"));
}

}  // namespace
}  // namespace meshloom::train
