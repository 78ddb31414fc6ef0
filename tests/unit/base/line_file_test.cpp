// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/line_file.h"

#include <gtest/gtest.h>

#include "tests/support/file_text.h"
#include "tests/support/full_disk.h"

namespace meshloom::base {
namespace {

using test::file_text;

TEST(LineFile, AppendsWhatIsWholeAndCutsOffWhatIsNot) {
  const test::TempFolder folder;
  const auto path = folder.write("log", "one\ntwo\nthr");
  {
    LineFile file(path);
    EXPECT_TRUE(file.append("three\n"));
    EXPECT_TRUE(file.append("four\nfive\n"));
  }
  EXPECT_EQ(file_text(path), "one\ntwo\nthree\nfour\nfive\n");
  folder.write("none", std::string(10'000, 'x'));
  EXPECT_TRUE(LineFile(folder / "none").append("first\n"));
  EXPECT_EQ(file_text(folder / "none"), "first\n");
  folder.write("long", "first\n" + std::string(10'000, 'x'));
  EXPECT_TRUE(LineFile(folder / "long").append("second\n"));
  EXPECT_EQ(file_text(folder / "long"), "first\nsecond\n");
}

TEST(LineFile, AShortWriteLeavesNoHalfLineAndIsCounted) {
  const test::TempFolder folder;
  LineFile file(folder / "log");
  EXPECT_TRUE(file.append("0123456789\n"));
  {
    const test::FileSizeLimit full(15);  // four bytes of the next line would fit
    EXPECT_FALSE(file.append("0123456789\n"));
    EXPECT_FALSE(file.append("a\nb\nc\nd\n"));
    EXPECT_EQ(file.lost(), 5);
    EXPECT_EQ(file.error(), EFBIG);
    EXPECT_EQ(file_text(folder / "log"), "0123456789\n");
    EXPECT_TRUE(file.append("ab\n")) << "a line that fits";
    EXPECT_EQ(file.lost(), 0);
  }
  EXPECT_TRUE(file.append("after\n"));
  EXPECT_EQ(file_text(folder / "log"), "0123456789\nab\nafter\n");
}

TEST(LineFile, OneThatCannotBeOpenedIsTriedAgain) {
  const test::TempFolder folder;
  LineFile file(folder / "later/log");
  EXPECT_EQ(file.error(), ENOENT);
  EXPECT_FALSE(file.append("lost\n"));
  EXPECT_EQ(file.lost(), 1);
  std::filesystem::create_directories(folder / "later");
  EXPECT_TRUE(file.append("kept\n"));
  EXPECT_EQ(file_text(folder / "later/log"), "kept\n");
}

TEST(LineFile, ADiskThatIsFullForAWhileTearsNothing) {
  const test::SmallDisk disk(1);
  if (!disk.mounted()) GTEST_SKIP() << "a file system of its own cannot be mounted";
  LineFile file(disk / "log");
  const std::string line = std::string(999, 'x') + "\n";
  EXPECT_TRUE(file.append(line));
  disk.fill();
  int refused = 0;
  for (int i = 0; i < 50; ++i) refused += file.append(line) ? 0 : 1;
  EXPECT_GT(refused, 40) << "what is left of the page takes some";
  EXPECT_EQ(file.lost(), refused);
  disk.free();
  EXPECT_TRUE(file.append(line));
  const std::string text = file_text(disk / "log");
  EXPECT_EQ(text.size(), static_cast<std::size_t>(52 - refused) * line.size());
  for (std::size_t at = 0; at < text.size(); at += line.size())
    EXPECT_EQ(text.substr(at, line.size()), line);
}

}  // namespace
}  // namespace meshloom::base
