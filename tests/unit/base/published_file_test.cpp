// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/published_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "tests/support/file_text.h"
#include "tests/support/full_disk.h"
#include "tests/support/reason_of.h"
#include "tests/support/temp_folder.h"

namespace meshloom::base {
namespace {

namespace fs = std::filesystem;
using test::file_text;
using test::reason_of;

class PublishedFileTest : public ::testing::Test {
 protected:
  fs::path path() const { return folder_ / "file"; }
  fs::path hidden() const { return folder_ / ".file.new"; }
  static void write(PublishedFile& file, const std::string& text) {
    file.write(std::as_bytes(std::span(text)));
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      names.push_back(entry.path().filename().string());
    return names;
  }

  test::TempFolder folder_;
};

TEST_F(PublishedFileTest, IsThereOnceItIsWhole) {
  {
    PublishedFile file(path());
    write(file, "__cdef");
    file.write_at("ab", 0);
    file.sync();
    EXPECT_EQ(file_text(hidden()), "abcdef");
    EXPECT_FALSE(fs::exists(path()));
    file.commit(Existing::kRefuse);
  }
  EXPECT_EQ(file_text(path()), "abcdef");
  EXPECT_THAT(names(), ::testing::ElementsAre("file"));
}

TEST_F(PublishedFileTest, LeavesNothingWithoutACommit) {
  { PublishedFile file(path()); }
  EXPECT_THAT(names(), ::testing::IsEmpty());
  folder_.write("file", "old");
  {
    PublishedFile file(path());
    write(file, "new");
    const test::FileSizeLimit limit(3);
    EXPECT_EQ(reason_of([&] { write(file, "er"); }), "DISK_FULL");
  }
  EXPECT_EQ(file_text(path()), "old");
  EXPECT_THAT(names(), ::testing::ElementsAre("file"));
}

TEST_F(PublishedFileTest, AFileThatComesMeanwhileStaysUnlessItIsToBeReplaced) {
  {
    PublishedFile file(path());
    write(file, "new");
    folder_.write("file", "meanwhile");
    EXPECT_EQ(reason_of([&] { file.commit(Existing::kRefuse); }), "ALREADY_EXISTS");
  }
  EXPECT_EQ(file_text(path()), "meanwhile");
  PublishedFile file(path());
  write(file, "new");
  file.commit(Existing::kReplace);
  EXPECT_EQ(file_text(path()), "new");
  EXPECT_THAT(names(), ::testing::ElementsAre("file"));
  fs::remove(path());
  fs::create_symlink(folder_ / "nowhere", path());
  PublishedFile other(path());
  EXPECT_EQ(reason_of([&] { other.commit(Existing::kRefuse); }), "ALREADY_EXISTS");
}

TEST_F(PublishedFileTest, WhoBeganLastHasThePath) {
  auto first = std::make_unique<PublishedFile>(path());
  write(*first, "first");
  PublishedFile second(path());
  write(second, "second");
  EXPECT_EQ(reason_of([&] { first->commit(Existing::kReplace); }), "FILE_BUSY");
  first.reset();
  second.commit(Existing::kRefuse);
  EXPECT_EQ(file_text(path()), "second");
  EXPECT_THAT(names(), ::testing::ElementsAre("file"));
}

TEST_F(PublishedFileTest, ASecondNameReplacesNothing) {
  const fs::path from = folder_.write("from", "new"), to = folder_.write("to", "old");
  EXPECT_EQ(link_to_free_name(from, to), EEXIST);
  EXPECT_EQ(file_text(to), "old");
  fs::remove(to);
  EXPECT_EQ(link_to_free_name(from, to), 0);
  EXPECT_EQ(file_text(to), "new");
  EXPECT_THAT(names(), ::testing::ElementsAre("to"));
}

TEST_F(PublishedFileTest, NeverWritesThroughWhatHasTheHiddenName) {
  const fs::path kept = folder_.write("kept", "kept");
  fs::create_symlink(kept, hidden());
  { PublishedFile(path()).commit(Existing::kReplace); }
  fs::create_hard_link(kept, hidden());
  { PublishedFile(path()).commit(Existing::kReplace); }
  ASSERT_EQ(::mkfifo(hidden().c_str(), 0600), 0);
  { PublishedFile(path()).commit(Existing::kReplace); }
  EXPECT_EQ(file_text(kept), "kept");
  EXPECT_EQ(file_text(path()), "");
  EXPECT_THROW(PublishedFile(folder_ / "no/folder/file"), IoError);
}

}  // namespace
}  // namespace meshloom::base
