// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/daemon_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "daemon/launch/started_daemons.h"
#include "tests/support/scoped_variable.h"
#include "tests/support/temp_folder.h"

namespace meshloom::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class DaemonAddressTest : public ::testing::Test {
 protected:
  DaemonAddressTest() {
    fs::create_directories(folder_ / "work");
    fs::current_path(folder_ / "work");
  }
  ~DaemonAddressTest() override { fs::current_path(before_); }

  /// As if this process were the mpirun of a daemon.
  launch::LaunchRecord launched(const std::string& name, bool runs = true) {
    folder_.write(name + "/address", name + ":1\n");
    launch::LaunchRecord record{folder_ / name, launch::identify(::getpid()), 1,
                                folder_ / name / "log"};
    if (!runs) record.launcher.start_time += 1;
    launch::write_record(record);
    return record;
  }
  DaemonAddress find(const AskedDaemon& asked = {}) const {
    return find_address(asked, environment_);
  }

  const fs::path before_ = fs::current_path();
  test::TempFolder folder_;
  const test::ScopedVariable list_{"XDG_STATE_HOME", folder_ / "home"};
  base::Environment environment_;  ///< without a state dir: it is meshloom-state in "work"
};

TEST_F(DaemonAddressTest, WhatTheLineSaysWins) {
  environment_.address = "variable:1";
  const std::string state = launched("one").state_dir;
  EXPECT_EQ(find({"line:1", state}).address, "line:1");
  EXPECT_EQ(find({"", state}).address, "one:1");
  EXPECT_EQ(find({"", state + "/"}).address, "one:1");
  EXPECT_EQ(find().address, "variable:1");
}

TEST_F(DaemonAddressTest, WithoutAWordItIsTheOneOfTheFolderOrTheLastThatWasStarted) {
  EXPECT_EQ(find().address, "127.0.0.1:7420");
  EXPECT_EQ(find().note, "");
  launch::remember(launched("listed"));
  EXPECT_EQ(find().address, "listed:1");
  launched("work/meshloom-state");
  EXPECT_EQ(find().address, "work/meshloom-state:1");
  environment_.state_dir = launched("named").state_dir;
  EXPECT_EQ(find().address, "named:1");
}

// What is meant for one daemon must not reach another one.
TEST_F(DaemonAddressTest, AStateDirThatIsNamedStandsForNoOtherDaemon) {
  launch::remember(launched("listed"));
  for (const std::string& state :
       {(folder_ / "nothing").string(), launched("killed", false).state_dir.string()}) {
    environment_.state_dir = state;
    EXPECT_EQ(find().address, kNoAddress) << state;
    EXPECT_TRUE(find().note_says_all) << state;
    EXPECT_THAT(find().note, HasSubstr(state));
  }
  environment_.address = "variable:1";
  EXPECT_EQ(find().address, "variable:1");
}

TEST_F(DaemonAddressTest, OneThatIsAboutToServeInTheWorkingFolderIsWaitedForAlone) {
  launch::remember(launched("listed"));
  launched("work/meshloom-state");
  fs::remove(folder_ / "work/meshloom-state/address");
  EXPECT_EQ(find().address, kNoAddress);
  EXPECT_THAT(find().note, HasSubstr("does not serve yet"));
}

TEST_F(DaemonAddressTest, OneOfAnotherHostOrAccountIsToldAsSuch) {
  launch::LaunchRecord record = launched("there");
  record.launcher.host = "another-host";
  launch::write_record(record);
  EXPECT_THAT(find({"", record.state_dir}).note,
              HasSubstr("was started on host another-host and is not seen from here"));
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  ASSERT_EQ(::chown(record.state_dir.c_str(), 65534, 65534), 0);
  EXPECT_THAT(find({"", record.state_dir}).note, HasSubstr("belongs to another account"));
}

TEST_F(DaemonAddressTest, ADaemonThatHasEndedIsNotAskedFor) {
  const std::string state = launched("killed", false).state_dir;
  const DaemonAddress asked = find({"", state});
  EXPECT_EQ(asked.address, kNoAddress);
  EXPECT_TRUE(asked.note_says_all);
  EXPECT_THAT(asked.note, HasSubstr("the daemon on state dir " + state + " has ended; its log is"));
  launched("work/meshloom-state", false);
  EXPECT_EQ(find().address, "127.0.0.1:7420") << "another one may serve there";
  EXPECT_FALSE(find().note_says_all);
  EXPECT_THAT(find().note, HasSubstr("has ended"));
}

TEST_F(DaemonAddressTest, OneThatDoesNotServeYetSaysSo) {
  const std::string state = launched("young").state_dir;
  fs::remove(folder_ / "young/address");
  EXPECT_THAT(find({"", state}).note, HasSubstr("does not serve yet; its log is"));
  EXPECT_THAT(find({"", folder_ / "nothing"}).note, HasSubstr("no daemon runs on state dir"));
}

TEST_F(DaemonAddressTest, ADamagedRecordIsPassedOver) {
  launched("work/meshloom-state");
  folder_.write("work/meshloom-state/launch.json", "{");
  EXPECT_EQ(find().address, "127.0.0.1:7420");
}

}  // namespace
}  // namespace meshloom::cli
