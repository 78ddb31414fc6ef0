// SPDX-License-Identifier: Apache-2.0
// Files that somebody named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>

#include "daemon/base/input_file.h"
#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"

namespace meshloom::base {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// "KIND REASON: text" of what opening the path throws.
std::string refusal(const fs::path& path, InputFile::Links links = InputFile::Links::kFollow) {
  try {
    InputFile file(path, links);
  } catch (const Error& error) {
    return fmt::format("{} {}: {}", error_kind_name(error.kind()), error.reason(), error.what());
  }
  return "was opened";
}

class InputFileTest : public ::testing::Test {
 protected:
  fs::path write(const std::string& text) const {
    const fs::path path = folder_.path() / "file";
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    return path;
  }
  test::TempFolder folder_;
};

TEST_F(InputFileTest, ReadsWhatIsThere) {
  const InputFile file(write("0123456789"));
  EXPECT_EQ(file.size(), 10u);
  EXPECT_EQ(file.read_text(10), "0123456789");
  std::string part(4, ' ');
  file.read(3, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "3456");
  EXPECT_THROW(file.read_text(9), InvalidArgument);
}

TEST_F(InputFileTest, AFileThatWasCutIsAnErrorThatNamesIt) {
  const fs::path path = write("0123456789");
  const InputFile file(path);
  fs::resize_file(path, 4);
  std::string part(4, ' ');
  file.read(0, std::as_writable_bytes(std::span(part)));
  try {
    file.read(6, std::as_writable_bytes(std::span(part)));
    FAIL() << "bytes behind the end were read";
  } catch (const IoError& error) {
    EXPECT_EQ(error.reason(), "FILE_TRUNCATED");
    EXPECT_THAT(error.what(), HasSubstr(path.string() + " ends at byte 4"));
  }
}

TEST_F(InputFileTest, OnlyRegularFilesAreOpenedAndNothingWaits) {
  const fs::path pipe = folder_.path() / "pipe", socket = folder_.path() / "socket";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(refusal(pipe), HasSubstr("INVALID_ARGUMENT NOT_A_REGULAR_FILE"));
  EXPECT_THAT(refusal(pipe), HasSubstr("is a pipe, expected a regular file"));
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("is a folder"));
  EXPECT_THAT(refusal("/dev/null"), HasSubstr("is a device"));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(socket.string().size(), sizeof address.sun_path);
  std::copy_n(socket.c_str(), socket.string().size(), address.sun_path);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_THAT(refusal(socket), HasSubstr("NOT_A_REGULAR_FILE"));
  ::close(fd);
}

TEST_F(InputFileTest, PathsThatLeadNowhereHaveTheirOwnErrors) {
  const fs::path loop = folder_.path() / "loop", link = folder_.path() / "link";
  fs::create_symlink(loop, loop);
  fs::create_symlink(write("x"), link);
  EXPECT_THAT(refusal(loop), HasSubstr("INVALID_ARGUMENT INVALID_PATH"));
  EXPECT_THAT(refusal(folder_.path() / std::string(5000, 'n')), HasSubstr("INVALID_PATH"));
  EXPECT_THAT(refusal(folder_.path() / "none"), HasSubstr("NOT_FOUND NOT_FOUND"));
  EXPECT_EQ(refusal(link), "was opened");
  EXPECT_THAT(refusal(link, InputFile::Links::kRefuse), HasSubstr("INVALID_PATH"));
}

}  // namespace
}  // namespace meshloom::base
