// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/data_output.h"

#include <gtest/gtest.h>

#include <tuple>

#include "tests/support/reason_of.h"
#include "tests/support/temp_folder.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

class DataOutputsTest : public ::testing::Test {
 protected:
  DataOutputsTest() {
    for (const char* folder : {"a/sub", "b", "a/state/jobs"})
      fs::create_directories(folder_ / folder);
  }
  std::string refusal(const std::string& name, bool overwrite = false) {
    return test::reason_of([&] { outputs_.claim({"path", name, overwrite}); });
  }

  test::TempFolder folder_;
  DataOutputs outputs_{(folder_ / "a").string() + ":" + (folder_ / "b").string(),
                       folder_ / "a/state"};
};

TEST_F(DataOutputsTest, LieBelowTheDataFoldersUnderTheNameThatAJobFinds) {
  for (const auto& [asked, path, name] :
       {std::tuple{"x.txt", "a/x.txt", "x.txt"}, std::tuple{"./x.txt", "a/x.txt", "x.txt"},
        std::tuple{"sub/x.txt", "a/sub/x.txt", "sub/x.txt"}}) {
    const auto place = outputs_.claim({"path", asked, false});
    EXPECT_EQ(place.path, folder_ / path);
    EXPECT_EQ(outputs_.name_for_jobs(place.path), name);
  }
  const std::string second = folder_ / "b/x.txt";
  EXPECT_EQ(outputs_.claim({"path", second, false}).path, second);
  folder_.write("b/x.txt", "");
  EXPECT_EQ(outputs_.name_for_jobs(second), "x.txt");
  folder_.write("a/x.txt", "");
  EXPECT_EQ(outputs_.name_for_jobs(second), second) << "a job would find the other one";
}

TEST_F(DataOutputsTest, AFileThatJobsFindUnderTheNameIsTheOne) {
  folder_.write("b/x.txt", "");
  EXPECT_EQ(refusal("x.txt"), "ALREADY_EXISTS");
  EXPECT_EQ(outputs_.claim({"path", "x.txt", true}).path, folder_ / "b/x.txt");
  EXPECT_EQ(outputs_.look({"path", "y.txt", false}), folder_ / "a/y.txt");
}

TEST_F(DataOutputsTest, NothingElseIsWritten) {
  for (const std::string name : {"", ".", "..", "sub/", "sub/.."})
    EXPECT_EQ(refusal(name), "INVALID_ARGUMENT") << name;
  EXPECT_EQ(refusal(std::string("a\0b", 3)), "INVALID_ARGUMENT");
  EXPECT_EQ(refusal(std::string(251, 'x')), "INVALID_ARGUMENT");
  EXPECT_EQ(refusal(std::string(250, 'x')), "");
  for (const std::string name :
       {".x.new", ".hidden", "sub/.x", "\n\x1b[2J", "x\x7f", "a\tb", "sub\n/x", "\xff", "x\xc3"})
    EXPECT_EQ(refusal(name, true), "INVALID_ARGUMENT") << name;
  EXPECT_EQ(refusal("Gru\xc3\x9f.txt"), "");
  EXPECT_EQ(refusal("../x"), "INVALID_PATH");
  EXPECT_EQ(refusal("/etc/x"), "INVALID_PATH");
  EXPECT_EQ(refusal("no/x"), "NOT_FOUND");
  EXPECT_EQ(refusal("state/journal", true), "INVALID_ARGUMENT");
  EXPECT_EQ(refusal("state/jobs/x"), "INVALID_ARGUMENT");
  fs::create_directory_symlink(folder_ / "a/state", folder_ / "a/link");
  EXPECT_EQ(refusal("link/journal", true), "INVALID_ARGUMENT");
  EXPECT_EQ(refusal("sub", true), "INVALID_ARGUMENT");
  folder_.write("a/file", "");
  EXPECT_EQ(refusal("file/x"), "INVALID_ARGUMENT");
  EXPECT_EQ(refusal("file"), "ALREADY_EXISTS");
  EXPECT_EQ(refusal("file", true), "");
}

TEST_F(DataOutputsTest, OnePathIsWrittenByOneCallAtATime) {
  fs::create_directory_symlink(folder_ / "a/sub", folder_ / "a/same");
  auto place = outputs_.claim({"path", "sub/x", false});
  EXPECT_EQ(refusal("sub/x", true), "FILE_BUSY");
  EXPECT_EQ(refusal("same/x", true), "FILE_BUSY");
  EXPECT_EQ(outputs_.look({"path", "sub/x", false}), folder_ / "a/sub/x") << "takes nothing";
  EXPECT_EQ(refusal("x"), "");
  place.claim.release();
  EXPECT_EQ(refusal("same/x"), "");
}

}  // namespace
}  // namespace meshloom::control
