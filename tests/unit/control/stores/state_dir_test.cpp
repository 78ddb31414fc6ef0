// SPDX-License-Identifier: Apache-2.0
// The daemon's folder: locked, private, and noticed when it goes.
#include "daemon/control/stores/state_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "daemon/control/net/status.h"
#include "tests/support/file_text.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/control/open_job_store.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class StateDirTest : public ::testing::Test {
 protected:
  /// The reason of what `body` throws.
  template <typename Body>
  static std::string reason(Body&& body) {
    try {
      body();
    } catch (const Error& error) {
      return error.reason();
    }
    return "nothing";
  }
  static fs::perms others(const fs::path& path) {
    return fs::status(path).permissions() & (fs::perms::group_all | fs::perms::others_all);
  }
  test::TempFolder folder_;
  fs::path root_ = folder_.path() / "state";
};

TEST_F(StateDirTest, StaysLockedWhenItsLockFileIsRemoved) {
  const StateDir first(root_);
  EXPECT_EQ(reason([&] { StateDir second(root_); }), "STATE_DIR_LOCKED");
  fs::remove(root_ / "lock");
  EXPECT_EQ(reason([&] { StateDir second(root_); }), "STATE_DIR_LOCKED");
}

/// Promises who takes the lock.
class TakenLock final : public LockBeat::Observer {
 public:
  void lock_taken(const std::string& who) override { who_.set_value(who); }
  std::future<std::string> who() { return who_.get_future(); }

 private:
  std::promise<std::string> who_;
};

class StateDirWithoutLocksTest : public StateDirTest {
 protected:
  StateDirWithoutLocksTest() {
    options_.lock = [](int) { return ENOLCK; };
    options_.times = {20ms, 300ms};
    options_.observer = &taken_;
  }
  /// How long it takes.
  std::chrono::steady_clock::duration start() {
    const auto begin = std::chrono::steady_clock::now();
    state_ = std::make_unique<StateDir>(root_, options_);
    return std::chrono::steady_clock::now() - begin;
  }
  /// What a daemon on another host has written.
  void write_lock(int beat) const {
    std::string text = fmt::format("77\nhost node7\nboot b\nstart s\nbeat {}\n", beat);
    text.resize(512, '\n');
    folder_.write("state/lock", text);
  }

  StateDir::LockOptions options_;
  TakenLock taken_;
  std::unique_ptr<StateDir> state_;
};

TEST_F(StateDirWithoutLocksTest, ASecondDaemonIsRefusedAsLongAsTheFirstIsAlive) {
  start();
  for (int i = 0; i < 2; ++i) {
    try {
      const StateDir second(root_, options_);
      FAIL() << "two daemons on one folder";
    } catch (const Error& error) {
      EXPECT_EQ(error.reason(), "STATE_DIR_LOCKED");
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("pid {} on ", ::getpid())));
    }
  }
  EXPECT_NO_THROW(state_->publish_address("here:1"));
  state_.reset();
  EXPECT_LT(start(), options_.times.still) << "it was given back";
}

TEST_F(StateDirWithoutLocksTest, OneThatHasDiedIsWatchedAndThenFollowed) {
  write_lock(7);
  EXPECT_GE(start(), options_.times.still);
}

TEST_F(StateDirWithoutLocksTest, OneThatBeatsOnAnotherHostIsNamed) {
  write_lock(7);
  std::atomic<bool> done{false};
  std::thread other([&] {
    for (int beat = 8; !done; ++beat) {
      write_lock(beat);
      std::this_thread::sleep_for(20ms);
    }
  });
  try {
    start();
    ADD_FAILURE() << "two daemons on one folder";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("pid 77 on node7"));
  }
  done = true;
  other.join();
}

TEST_F(StateDirWithoutLocksTest, OfTwoThatBeginAtOnceOneGoesOn) {
  std::atomic<int> refused{0};
  std::unique_ptr<StateDir> states[2];
  std::vector<std::thread> threads;
  for (auto& state : states)
    threads.emplace_back([&] {
      try {
        state = std::make_unique<StateDir>(root_, options_);
      } catch (const Error&) {
        ++refused;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 1);
}

TEST_F(StateDirWithoutLocksTest, OneThatWasTakenForDeadHearsOfIt) {
  start();
  write_lock(1);
  auto who = taken_.who();
  ASSERT_EQ(who.wait_for(10s), std::future_status::ready);
  EXPECT_EQ(who.get(), "pid 77 on node7");
  std::this_thread::sleep_for(100ms);
  state_.reset();
  EXPECT_THAT(test::file_text(root_ / "lock"), HasSubstr("node7")) << "it is the other one's";
}

TEST_F(StateDirTest, NoticesThatItIsGone) {
  const StateDir state(root_);
  std::ofstream(state.journal()) << "journal";
  EXPECT_NO_THROW(state.check_in_place());
  fs::rename(root_, folder_.path() / "moved");
  EXPECT_EQ(reason([&] { state.check_in_place(); }), "STATE_DIR_GONE");
  fs::create_directories(root_);
  std::ofstream(state.journal()) << "another";
  EXPECT_EQ(reason([&] { state.check_in_place(); }), "STATE_DIR_GONE");
  fs::remove_all(root_);
  fs::rename(folder_.path() / "moved", root_);
  EXPECT_NO_THROW(state.check_in_place());
  fs::remove(state.journal());
  EXPECT_EQ(reason([&] { state.check_in_place(); }), "STATE_DIR_GONE");
}

TEST_F(StateDirTest, AnOpenOneBecomesPrivateButNotWhatLinksLeadTo) {
  fs::create_directories(root_ / "jobs/old/checkpoints");
  std::ofstream(root_ / "jobs/old/metrics.jsonl") << "{}";
  const fs::path other = folder_.path() / "other.txt";
  std::ofstream(other) << "of somebody else";
  fs::create_symlink(other, root_ / "link");
  for (const fs::path& path : {root_, root_ / "jobs", root_ / "jobs/old"})
    fs::permissions(path, fs::perms(0755));
  for (const fs::path& path : {other, root_ / "jobs/old/metrics.jsonl"})
    fs::permissions(path, fs::perms(0644));
  const StateDir state(root_);
  for (const char* name :
       {"", "jobs", "jobs/old", "jobs/old/checkpoints", "jobs/old/metrics.jsonl"})
    EXPECT_EQ(others(root_ / name), fs::perms::none) << name;
  EXPECT_NE(others(other), fs::perms::none);
}

TEST_F(StateDirTest, TheJournalHoldsNoAbsolutePath) {
  v1::JobSpec spec;
  spec.set_name("first");
  const auto store_in = [](const fs::path& root) {
    return std::make_unique<OpenJobStore>(root / "journal", JobStore::Options{root / "jobs"});
  };
  fs::create_directories(root_ / "jobs");
  {
    const auto store = store_in(root_);
    EXPECT_EQ(store->submit(spec, {}, {}).output_dir(), (root_ / "jobs/first").string());
    store->begin_attempt("first");
    store->update("first",
                  [&](v1::Job* job) { job->set_hf_folder((root_ / "jobs/first/hf").string()); });
    EXPECT_EQ(store->get("first").hf_folder(), (root_ / "jobs/first/hf").string());
  }
  std::ifstream file(root_ / "journal", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(bytes, Not(HasSubstr(root_.string())));
  const fs::path moved = folder_.path() / "moved";
  fs::rename(root_, moved);
  const v1::Job job = store_in(moved)->get("first");
  EXPECT_EQ(job.output_dir(), (moved / "jobs/first").string());
  EXPECT_EQ(job.hf_folder(), (moved / "jobs/first/hf").string());
}

TEST_F(StateDirTest, PathsOfAnOlderJournalAreReadAsWhereTheFilesAre) {
  fs::create_directories(root_ / "jobs");
  {
    Journal journal(root_ / "journal", [](std::string_view) {});
    v1::JournalRecord record;
    record.mutable_job()->set_name("jobs/old");
    record.mutable_job()->set_state(v1::JOB_STATE_SUCCEEDED);
    record.mutable_job()->set_output_dir("/somewhere/else/jobs/old");
    record.mutable_job()->set_hf_folder("/somewhere/else/jobs/old/hf");
    journal.append(record.SerializeAsString());
  }
  const OpenJobStore store(root_ / "journal", {root_ / "jobs"});
  EXPECT_EQ(store.get("old").output_dir(), (root_ / "jobs/old").string());
  EXPECT_EQ(store.get("old").hf_folder(), (root_ / "jobs/old/hf").string());
}

TEST(Status, TextInAnErrorStaysReadable) {
  const auto details = to_details(InvalidArgument(
      "größe \xff \x1b[1m", "X", {{"field", "数"}, {"value", std::string(600, '\xff')}}));
  EXPECT_EQ(details.message(), "größe \\xff \\x1b[1m");
  EXPECT_EQ(details.violations(0).field(), "数");
  EXPECT_LE(details.info().metadata().at("value").size(), 512u);
  const auto loop = std::make_exception_ptr(fs::filesystem_error(
      "status", "loop", std::make_error_code(std::errc::too_many_symbolic_link_levels)));
  EXPECT_EQ(to_details(loop).kind(), "INVALID_ARGUMENT");
}

}  // namespace
}  // namespace meshloom::control
