// SPDX-License-Identifier: Apache-2.0
// Files that are written: whole or not at all, and errors that say which.
#include "daemon/base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "daemon/base/file_stamp.h"
#include "daemon/base/input_file.h"
#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"

namespace meshloom::base {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FilesTest : public ::testing::Test {
 protected:
  std::string text_of(const char* name) const {
    return InputFile(folder_.path() / name).read_text(1 << 24);
  }
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }
  fs::path file() const { return folder_.path() / "file"; }

  test::TempFolder folder_;
};

TEST_F(FilesTest, AReplacedFileHoldsTheNewTextAlone) {
  replace_file(file(), "a long first text");
  replace_file(file(), "second", 0644);
  EXPECT_EQ(text_of("file"), "second");
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(fs::status(file()).permissions() & fs::perms::others_read, fs::perms::others_read);
}

TEST_F(FilesTest, WithoutCommitTheFileIsWhatItWas) {
  replace_file(file(), "old");
  {
    ReplacementFile next(file());
    next.write(std::string(3 << 20, 'x'));
    EXPECT_EQ(next.size(), 3u << 20);
    EXPECT_EQ(text_of("file"), "old");
    EXPECT_EQ(entries(), 2u);
  }
  EXPECT_EQ(text_of("file"), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(FilesTest, CommitGivesTheNewFileOutOpen) {
  replace_file(file(), "old");
  ReplacementFile next(file());
  next.write("new");
  const UniqueFd fd = next.commit();
  write_all_at(fd.get(), "er text", 3, file());
  EXPECT_EQ(text_of("file"), "newer text");
}

TEST_F(FilesTest, StampsTellAFileFromTheOneThatReplacedIt) {
  EXPECT_FALSE(file_stamp(file()).has_value());
  EXPECT_EQ(errno, ENOENT);
  replace_file(file(), "text");
  const auto stamp = file_stamp(file());
  ASSERT_TRUE(stamp.has_value());
  EXPECT_EQ(file_stamp(file()), stamp);
  replace_file(file(), "text");
  EXPECT_NE(file_stamp(file()), stamp);
}

TEST_F(FilesTest, ALinkInTheWayIsNotFollowed) {
  replace_file(folder_.path() / "other", "kept");
  fs::create_symlink(folder_.path() / "other", file().string() + ".new");
  EXPECT_THROW(replace_file(file(), "text"), IoError);
  EXPECT_EQ(text_of("other"), "kept");
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(FilesTest, WritingReachesTheEndOrNamesTheFile) {
  const std::string text(100000, 'y');
  write_all(open_output(file(), O_WRONLY | O_CREAT, 0600).get(), std::as_bytes(std::span(text)),
            file());
  EXPECT_EQ(text_of("file"), text);
  const UniqueFd full = open_output("/dev/full", O_WRONLY);
  try {
    write_all(full.get(), std::as_bytes(std::span(text)), "the file");
    FAIL() << "a full device took it";
  } catch (const ResourceExhausted& error) {
    EXPECT_EQ(error.reason(), "DISK_FULL");
    EXPECT_THAT(error.what(), HasSubstr("cannot write the file: No space left on device"));
  }
}

TEST_F(FilesTest, TheSameRefusalMeansSomethingElseToWhoReadsAndToWhoWrites) {
  EXPECT_THROW(throw_input_error("cannot open", "a", ENOENT), NotFound);
  EXPECT_THROW(throw_input_error("cannot open", "a", EACCES), FailedPrecondition);
  EXPECT_THROW(throw_io_error("cannot open", "a", ENOENT), IoError);
  EXPECT_THROW(throw_io_error("cannot write", "a", EDQUOT), ResourceExhausted);
  EXPECT_THROW(open_output(folder_.path() / "no" / "file", O_WRONLY | O_CREAT, 0600), IoError);
  EXPECT_THROW(sync_folder(folder_.path() / "no"), IoError);
  EXPECT_THROW(rename_file(folder_.path() / "no", file()), IoError);
  const std::string path(300, 'p');
  EXPECT_EQ(shown(path), path.substr(0, 256) + "... (300 bytes)");
}

}  // namespace
}  // namespace meshloom::base
