// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/process.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

namespace meshloom::e2e {
namespace {

using namespace std::chrono_literals;

class ProcessE2e : public testing::Test {
 protected:
  ProcessE2e() {
    std::string pattern = (std::filesystem::temp_directory_path() / "meshloom_e2e_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~ProcessE2e() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(ProcessE2e, AnExitCodeIsKeptWhileAnotherProcessEnds) {
  Process first({"sh", "-c", "exit 4"}, folder_ / "first");
  ASSERT_TRUE(eventually(10s, [&] { return !is_alive(first.pid()); }));
  EXPECT_EQ(run_command({"true"}, 10s).exit_code, 0);
  EXPECT_EQ(first.wait(1s), 4);
}

TEST_F(ProcessE2e, NothingOfTheSessionIsLeft) {
  pid_t grandchild = 0;
  {
    Process shell({"sh", "-c", "sleep 1000 & echo $!; wait"}, folder_ / "shell");
    ASSERT_TRUE(eventually(
        10s, [&] { return static_cast<bool>(std::ifstream(folder_ / "shell") >> grandchild); }));
  }
  EXPECT_FALSE(std::filesystem::exists("/proc/" + std::to_string(grandchild)))
      << "killed, but not waited for";
}

}  // namespace
}  // namespace meshloom::e2e
