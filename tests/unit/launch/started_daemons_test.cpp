// SPDX-License-Identifier: Apache-2.0
#include "daemon/launch/started_daemons.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <iterator>

#include "daemon/base/unique_fd.h"
#include "kernels/base/error.h"
#include "tests/support/scoped_variable.h"
#include "tests/unit/launch/stand_in_launcher.h"

namespace meshloom::launch {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class StartedDaemons : public LaunchTest {
 protected:
  /// A record of this very process, which runs.
  LaunchRecord launched(const std::string& name) const {
    fs::create_directories(folder_ / name);
    const LaunchRecord record{folder_ / name, identify(::getpid()), 1, folder_ / name / "log"};
    write_record(record);
    folder_.write(name + "/address", name + ":1\n");
    return record;
  }
  const fs::path list_ = folder_ / "list/daemons";
};

TEST_F(StartedDaemons, AFolderTellsOfItsDaemon) {
  fs::create_directories(state_);
  EXPECT_FALSE(find_on(state_).has_value());
  EXPECT_FALSE(find_on(folder_ / "missing").has_value());
  const auto found = find_on(launched("one").state_dir).value();
  EXPECT_TRUE(found.runs);
  EXPECT_TRUE(found.record.has_value());
  EXPECT_EQ(found.address, "one:1");
}

TEST_F(StartedDaemons, WhatAKilledOneLeftIsSeenThrough) {
  LaunchRecord record = launched("killed");
  record.launcher.start_time += 1;
  write_record(record);
  const auto found = find_on(record.state_dir).value();
  EXPECT_FALSE(found.runs);
  EXPECT_EQ(found.address, "") << "nobody serves there any more";
}

TEST_F(StartedDaemons, OneThatWasStartedByHandIsFoundByItsLockFile) {
  folder_.write("hand/address", "hand:1\n");
  const auto lock = folder_.write("hand/lock", std::to_string(::getpid()));
  EXPECT_FALSE(find_on(folder_ / "hand")->runs) << "another process has that number by now";
  const base::UniqueFd held(::open(lock.c_str(), O_RDWR | O_CLOEXEC));
  const auto found = find_on(folder_ / "hand").value();
  EXPECT_TRUE(found.runs);
  EXPECT_FALSE(found.record.has_value());
  EXPECT_EQ(found.address, "hand:1");
}

TEST_F(StartedDaemons, TheListHasThoseThatRunTheLastFirst) {
  EXPECT_TRUE(running(list_).empty());
  const LaunchRecord first = launched("first");
  remember(first, list_);
  std::this_thread::sleep_for(20ms);  // the order is that of the entries' times
  const LaunchRecord second = launched("second");
  remember(second, list_);
  LaunchRecord ended = launched("ended");
  remember(ended, list_);
  ended.launcher.start_time += 1;
  write_record(ended);
  remember(launched("removed"), list_);
  fs::remove_all(folder_ / "removed");
  folder_.write("list/daemons/elsewhere", "/a folder of its own disk\nanother-host\n");
  remember(launched("damaged"), list_);
  folder_.write("damaged/launch.json", "{");
  folder_.write("list/daemons/garbage", std::string(1000, '\xff'));

  const auto all = running(list_);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].state_dir, second.state_dir);
  EXPECT_EQ(all[1].address, "first:1");
  EXPECT_EQ(std::distance(fs::directory_iterator(list_), fs::directory_iterator()), 5)
      << "what has ended or is removed is taken off, what this host cannot judge stays";
  forget(second, list_);
  EXPECT_EQ(running(list_).size(), 1u);
}

TEST_F(StartedDaemons, TheListIsBelowTheFolderForStates) {
  test::ScopedVariable state("XDG_STATE_HOME"), home("HOME");
  state.set("/states");
  EXPECT_EQ(started_folder(), "/states/meshloom/daemons");
  state.set("relative");
  home.set("/home/me");
  EXPECT_EQ(started_folder(), "/home/me/.local/state/meshloom/daemons");
  state.unset();
  home.unset();
  EXPECT_EQ(started_folder(), "");
  EXPECT_THROW(remember(launched("one"), started_folder()), IoError);
}

}  // namespace
}  // namespace meshloom::launch
