// SPDX-License-Identifier: Apache-2.0
#include "daemon/launch/start_daemon.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/unique_fd.h"
#include "kernels/base/error.h"
#include "tests/support/file_text.h"
#include "tests/unit/launch/stand_in_launcher.h"

namespace meshloom::launch {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::HasSubstr;
using StartDaemon = LaunchTest;

StartWait patient(std::chrono::milliseconds patience) {
  return {.patience = patience,
          .slow = [] {},
          .serves = [](const std::string& address) { return address == "here:1"; },
          .interrupted = [] { return false; }};
}

constexpr const char* kServes = "echo here:1 > \"$state/address\"\nsleep 100\n";

TEST_F(StartDaemon, ItRunsInASessionOfItsOwnWithItsRecordAndLog) {
  const LaunchRecord& record =
      start("test -e \"$state/launch.json\" && echo it has a record\necho \"$@\"\n" +
            std::string(kServes));
  EXPECT_EQ(wait_until_serving(record, patient(20s)), StartEnd::kServes);
  EXPECT_EQ(::getsid(record.launcher.pid), record.launcher.pid);
  const std::string log = test::file_text(record.log);
  EXPECT_THAT(log, HasSubstr("it has a record"));
  EXPECT_THAT(log, HasSubstr("--world-size 2 --state-dir " + state_.string()));
  struct stat folder {};
  ASSERT_EQ(::stat(state_.c_str(), &folder), 0);
  EXPECT_EQ(folder.st_mode & 0777, 0700u);
  EXPECT_EQ(read_record(state_)->launcher.pid, record.launcher.pid);
}

TEST_F(StartDaemon, ItHearsNoSignalThatIsBlockedHere) {
  sigset_t term, before;
  ::sigemptyset(&term);
  ::sigaddset(&term, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &term, &before);
  const LaunchRecord& record = start("exec sleep 100\n");
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const LaunchedProcesses processes(record);
  processes.ask_to_end();
  EXPECT_TRUE(wait_until(10s, [&] { return processes.ended(); }));
}

TEST_F(StartDaemon, ItKeepsNoLockThatThisProgramWasStartedWith) {
  const std::string file = folder_.write("lock of a script", "");
  // Without O_CLOEXEC, as a shell leaves its descriptors to programs.
  const int inherited = ::open(file.c_str(), O_RDONLY);
  ASSERT_EQ(::flock(inherited, LOCK_EX | LOCK_NB), 0);
  start("sleep 100\n");
  ::close(inherited);
  const base::UniqueFd again(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(test::eventually([&] { return ::flock(again.get(), LOCK_EX | LOCK_NB) == 0; }));
}

TEST_F(StartDaemon, OneThatEndsIsToldAtOnceAndItsLogStays) {
  const LaunchRecord& record = start("echo no such folder >&2\nexit 2\n");
  EXPECT_EQ(wait_until_serving(record, patient(20s)), StartEnd::kEnded);
  EXPECT_EQ(test::file_text(record.log), "no such folder\n");
  start("echo second\n");
  EXPECT_EQ(wait_until_serving(*record_, patient(20s)), StartEnd::kEnded);
  EXPECT_EQ(test::file_text(record_->log), "second\n");
  EXPECT_EQ(test::file_text(record_->log.string() + ".1"), "no such folder\n");
}

TEST_F(StartDaemon, WaitingEndsWithTimeAndByTheUser) {
  const LaunchRecord& record = start("sleep 100\n");
  EXPECT_EQ(wait_until_serving(record, patient(50ms)), StartEnd::kTooLate);
  StartWait wait = patient(20s);
  wait.interrupted = [] { return true; };
  EXPECT_EQ(wait_until_serving(record, wait), StartEnd::kInterrupted);
}

TEST_F(StartDaemon, AnAddressThatAKilledDaemonLeftIsNotTakenForTheNewOnes) {
  fs::create_directories(state_);
  folder_.write("a state/address", "here:1\n");
  const LaunchRecord& record = start("sleep 100\n");
  EXPECT_EQ(wait_until_serving(record, patient(200ms)), StartEnd::kTooLate);
}

TEST_F(StartDaemon, WhatCannotBeExecutedIsToldAndLeavesNoRecord) {
  const LaunchTurn turn(state_);
  LaunchOptions wrong = options("");
  wrong.mpirun = folder_ / "missing";
  try {
    start_daemon(wrong, turn);
    ADD_FAILURE();
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("missing cannot be executed: No such file"));
  }
  EXPECT_FALSE(read_record(state_).has_value());
}

/// The reason why nothing can be started on the folder now; empty: it can.
std::string refusal_on(const fs::path& state) {
  try {
    const LaunchTurn turn(state);
    return "";
  } catch (const Error& error) {
    return error.reason() + ": " + error.what();
  }
}

TEST_F(StartDaemon, AFolderHasOneDaemon) {
  EXPECT_EQ(refusal_on(state_), "");
  {
    const LaunchTurn turn(state_);
    EXPECT_THAT(refusal_on(state_), HasSubstr("another meshloom up is starting a daemon"));
  }
  start(kServes);
  EXPECT_EQ(wait_until_serving(*record_, patient(20s)), StartEnd::kServes);
  EXPECT_THAT(refusal_on(state_), HasSubstr("DAEMON_RUNS: meshloom up has started a daemon"));
  EXPECT_THAT(refusal_on(state_), HasSubstr("at here:1"));
  LaunchedProcesses(*record_).kill_all(5s);
  EXPECT_EQ(refusal_on(state_), "") << "what was killed is in nobody's way";
}

// A daemon of another host has the lock of the folder's file; here it runs nowhere.
TEST_F(StartDaemon, AFolderWhoseDaemonIsNotSeenFromHereStaysAsItIs) {
  folder_.write("a state/address", "there:1\n");
  folder_.write("a state/logs/daemon.log", "its log\n");
  const std::string lock = folder_.write("a state/lock", "1234567890");
  {
    const base::UniqueFd there(::open(lock.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::flock(there.get(), LOCK_EX | LOCK_NB), 0);
    EXPECT_THAT(refusal_on(state_), HasSubstr("DAEMON_RUNS: state dir " + state_.string() +
                                              " is in use by a meshloomd of another host"));
  }
  EXPECT_EQ(test::file_text(state_ / "address"), "there:1\n");
  EXPECT_EQ(test::file_text(state_ / "logs/daemon.log"), "its log\n");
  EXPECT_EQ(refusal_on(state_), "") << "it has ended";
}

TEST_F(StartDaemon, WhatCannotHoldAStateDirIsRefused) {
  folder_.write("file", "");
  EXPECT_THAT(refusal_on(folder_ / "file/state"), HasSubstr("cannot be made"));
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  fs::create_directories(state_);
  ASSERT_EQ(::chown(state_.c_str(), 65534, 65534), 0);
  EXPECT_THAT(refusal_on(state_), HasSubstr("STATE_DIR_NOT_OWN"));
}

}  // namespace
}  // namespace meshloom::launch
