// SPDX-License-Identifier: Apache-2.0
// Ended jobs: summaries, deletion, retention.
#include <condition_variable>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "daemon/base/timestamp.h"
#include "daemon/control/stores/retention.h"
#include "kernels/base/error.h"
#include "tests/support/eventually.h"
#include "tests/unit/control/stores/job_store_fixture.h"
#include "tests/unit/train/files/failpoint_file_system.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

class JobStoreRemovalTest : public JobStoreTest {
 protected:
  std::filesystem::path make_folder(const std::string& id) const {
    const auto folder = folder_ / "jobs" / id;
    std::filesystem::create_directories(folder / "checkpoints/step-1");
    std::ofstream(folder / "checkpoints/step-1/weights") << "w";
    return folder;
  }
  /// Why it cannot be deleted; empty: it could.
  static std::string refusal(JobStore& store, const std::string& folder) {
    try {
      store.delete_checkpoint("a", {.folder = folder}, {});
      return {};
    } catch (const FailedPrecondition& error) {
      return error.reason() + " " + error.metadata().at("used_by");
    }
  }
  static v1::Job submit_after(JobStore& store, const std::string& name, const std::string& source) {
    v1::JobSpec next = spec(name);
    next.mutable_run()->mutable_checkpoint()->set_resume_from("checkpoints/" + source + "/step-1");
    return store.submit(next, next.run(), {});
  }
};

TEST_F(JobStoreRemovalTest, OldEndedJobsStayAsSummariesWithTheirNamesAndRequests) {
  JobStore::Options few = options();
  few.most_detailed = 2;
  const auto check = [&](JobStore& store) {
    for (int i = 0; i < 5; ++i) {
      const v1::Job job = store.get(fmt::format("a{}", i));
      EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
      EXPECT_EQ(job.summary(), i < 3) << i;
      EXPECT_EQ(job.has_resolved(), i >= 3) << i;
      EXPECT_EQ(store.find_request(key("id", "a0"))->name(), "jobs/a0");
      EXPECT_THROW(submit(store, job.spec().name()), AlreadyExists);
    }
  };
  {
    OpenJobStore store(journal(), few);
    for (int i = 0; i < 5; ++i) {
      const std::string name = fmt::format("a{}", i);
      submit(store, name, i == 0 ? key("id", name) : RequestKey{});
      run_through(store, name);
    }
    check(store);
  }
  OpenJobStore store(journal(), few);
  check(store);
}

TEST_F(JobStoreRemovalTest, APathThatLeadsToACheckpointHoldsItAsItsNameDoes) {
  JobStore::Options below = options();
  below.data_dir = folder_.path();
  std::string other;  // the model folder of a run
  const auto find_run = [&](const ConfigTest& test) {
    v1::RunConfig config;
    config.mutable_model()->set_hf_folder(other);
    return test(config) ? std::optional<std::string>("runs/r") : std::nullopt;
  };
  below.uses = std::make_shared<const Uses>(Uses::Configs{.runs = find_run});
  OpenJobStore store(journal(), below);
  submit(store, "a");
  run_through(store, "a");
  const auto folder = make_folder("a");
  std::filesystem::create_directories(folder_ / "elsewhere/step-1");
  std::filesystem::create_directories(folder / "hf");
  std::filesystem::create_directory_symlink(folder / "checkpoints/step-1", folder_ / "link");
  const auto submit_on = [&](const std::string& name, const std::string& path) {
    v1::JobSpec next = spec(name);
    next.mutable_run()->mutable_checkpoint()->set_resume_from(path);
    store.submit(next, next.run(), {});
  };
  submit_on("by-path", "elsewhere/step-1");
  submit(store, "b");
  run_through(store, "b");
  make_folder("b");
  EXPECT_NO_THROW(store.remove("b", {})) << "the same name elsewhere";
  submit_on("by-link", "link");
  EXPECT_EQ(refusal(store, "step-1"), "CHECKPOINT_IN_USE by-link");
  EXPECT_THROW(store.remove("a", {}), JobInUse);
  store.cancel("by-link", {});
  other = (folder / "hf").string();
  EXPECT_EQ(refusal(store, "hf"), "CHECKPOINT_IN_USE runs/r");
  EXPECT_THROW(store.remove("a", {}), JobInUse);
  EXPECT_EQ(refusal(store, "step-1"), "");
  other.clear();
  store.remove("a", {});
}

/// Where paths lead, as a file system says that may hang.
class SlowPaths {
 public:
  ~SlowPaths() { answer(); }
  std::string follow(const std::string& path) {
    std::unique_lock lock(mutex_);
    asked_.push_back(path);
    changed_.notify_all();
    changed_.wait(lock, [&] { return answers_; });
    const auto found = leads_.find(path);
    return found == leads_.end() ? std::string() : found->second;
  }
  void lead(const std::string& path, const std::string& checkpoint) { leads_[path] = checkpoint; }
  void answer() {
    const std::lock_guard lock(mutex_);
    answers_ = true;
    changed_.notify_all();
  }
  void wait_until_asked() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !asked_.empty(); });
  }
  std::vector<std::string> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool answers_ = false;
  std::vector<std::string> asked_;
  std::map<std::string, std::string> leads_;
};

class SlowPathsTest : public JobStoreRemovalTest {
 protected:
  std::unique_ptr<JobStore> open(std::chrono::milliseconds timeout) {
    JobStore::Options slow = options();
    slow.follow = [paths = paths_](const std::string& path) { return paths->follow(path); };
    slow.follow_timeout = timeout;
    auto store = std::make_unique<OpenJobStore>(journal(), slow);
    submit(*store, "a");
    run_through(*store, "a");
    make_folder("a");
    return store;
  }
  static void submit_with(JobStore& store, const std::string& name, const std::string& folder) {
    v1::JobSpec next = spec(name);
    next.mutable_run()->mutable_model()->set_hf_folder(folder);
    store.submit(next, next.run(), {});
  }

  const std::shared_ptr<SlowPaths> paths_ = std::make_shared<SlowPaths>();
};

TEST_F(SlowPathsTest, NobodyWaitsForAFileSystemThatADeletionAsks) {
  const auto store = open(60s);
  submit_with(*store, "first", "slow/first");
  submit_with(*store, "second", "slow/second");
  paths_->lead("slow/late", "checkpoints/a/step-1");
  auto deletion = std::async(std::launch::async, [&] { return refusal(*store, "step-1"); });
  paths_->wait_until_asked();
  auto others = std::async(std::launch::async, [&] {
    store->cancel("first", {});
    submit_with(*store, "late", "slow/late");
    return store->list(0, 10).first.size();
  });
  const bool went_on = others.wait_for(20s) == std::future_status::ready;
  paths_->answer();
  EXPECT_TRUE(went_on) << "the store is held up";
  EXPECT_EQ(others.get(), 4u);
  EXPECT_EQ(deletion.get(), "CHECKPOINT_IN_USE late") << "that came meanwhile";
  const std::vector<std::string> each_once = {"slow/first", "slow/second", "slow/late"};
  EXPECT_EQ(paths_->asked(), each_once);
  store->cancel("late", {});
  EXPECT_EQ(refusal(*store, "step-1"), "");
}

TEST_F(SlowPathsTest, ADeletionThatCannotTellIsRefusedAndTriedAgain) {
  const auto store = open(50ms);
  submit_with(*store, "user", "slow/path");
  const auto stuck = [](const auto& removal) {
    try {
      removal();
    } catch (const DeadlineExceeded& error) {
      return error.reason();
    }
    return std::string();
  };
  const auto forget = [&] { store->delete_checkpoint("a", {.folder = "step-1"}, key("one", "a")); };
  EXPECT_EQ(stuck(forget), "FILE_SYSTEM_STUCK");
  EXPECT_EQ(stuck([&] { store->remove("a", {}); }), "FILE_SYSTEM_STUCK");
  EXPECT_TRUE(store->hanging());
  EXPECT_TRUE(std::filesystem::exists(folder_ / "jobs/a/checkpoints/step-1"));
  paths_->answer();
  forget();
  store->remove("a", {});
  EXPECT_FALSE(std::filesystem::exists(folder_ / "jobs/a"));
  EXPECT_TRUE(test::eventually([&] { return !store->hanging(); }));
}

TEST_F(JobStoreRemovalTest, CheckpointsThatSomeJobNeedsAreNotForgotten) {
  const auto reason = [](JobStore& store, const JobStore::GoneCheckpoint& gone) {
    try {
      store.delete_checkpoint("a", gone, {});
    } catch (const FailedPrecondition& error) {
      return error.reason();
    }
    return std::string();
  };
  const JobStore::GoneCheckpoint older = {.folder = "step-1"};
  JobStore::GoneCheckpoint newest = {.folder = "step-2", .newest = true, .newest_left = 1};
  {
    const auto store = open();
    submit(*store, "a");
    store->begin_attempt("a");
    move(*store, "a", v1::JOB_STATE_RUNNING);
    store->checkpoint_saved("a", 2, 1.0);
    newest.force = true;
    EXPECT_EQ(reason(*store, newest), "CHECKPOINT_IN_USE") << "it goes on from it";
    EXPECT_EQ(reason(*store, older), "") << "nobody does";
    publish_step(*store, "a", 2);
    move(*store, "a", v1::JOB_STATE_SUCCEEDED);
    submit_after(*store, "user", "a");
    EXPECT_EQ(reason(*store, older), "CHECKPOINT_IN_USE");
    newest.force = false;
    EXPECT_EQ(reason(*store, newest), "CHECKPOINT_IS_LAST");
    EXPECT_EQ(store->get("a").checkpoint_step(), 2);
    newest.force = true;
    store->delete_checkpoint("a", newest, key("forget", "a"));
    EXPECT_EQ(store->get("a").checkpoint_step(), 1);
    newest.newest_left = 0;
    store->delete_checkpoint("a", newest, key("forget", "a"));
    EXPECT_EQ(store->get("a").checkpoint_step(), 1) << "a repeat";
    store->cancel("user", {});
    EXPECT_EQ(reason(*store, older), "");
    EXPECT_THROW(store->delete_checkpoint("nobody", older, {}), NotFound);
  }
  const auto store = open();
  EXPECT_EQ(store->get("a").checkpoint_step(), 1);
  EXPECT_TRUE(store->find_request(key("forget", "a")));
}

TEST_F(JobStoreRemovalTest, WhatSomebodyReadsIsNotDeleted) {
  const auto store = open();
  submit(*store, "a");
  run_through(*store, "a");
  make_folder("a");
  auto pin = store->pin_checkpoint({"a", "step-1"}, "an evaluation");
  const auto refusal = [](const auto& removal) {
    try {
      removal();
    } catch (const FailedPrecondition& error) {
      return error.reason() + " " + error.metadata().at("used_by");
    }
    return std::string();
  };
  EXPECT_EQ(refusal([&] { store->delete_checkpoint("a", {.folder = "step-1"}, {}); }),
            "CHECKPOINT_IN_USE an evaluation");
  EXPECT_EQ(refusal([&] { store->remove("a", {}); }), "JOB_IN_USE an evaluation");
  EXPECT_EQ(refusal([&] { store->delete_checkpoint("a", {.folder = "step-10"}, {}); }), "")
      << "another one";
  pin.release();
  const auto export_pin = store->pin_checkpoint({"a", "hf"}, "an evaluation");
  EXPECT_EQ(refusal([&] { store->delete_checkpoint("a", {.folder = "step-1"}, {}); }), "");
  EXPECT_EQ(refusal([&] { store->remove("a", {}); }), "JOB_IN_USE an evaluation");
  EXPECT_THROW(store->pin_checkpoint({"nobody", "step-1"}, "an export"), NotFound);
}

TEST_F(JobStoreRemovalTest, ACheckpointsDeletionIsFinishedAtTheNextStartAndTakesNoLaterOne) {
  testing::FailpointFileSystem broken([](int) { throw IoError("the disk does not answer"); });
  JobStore::Options options_with_broken = options();
  options_with_broken.files = &broken;
  const auto write = [&](const std::string& text) {
    const auto path = folder_ / "jobs/a/checkpoints/step-1";
    std::filesystem::create_directories(path);
    std::ofstream(path / "manifest.json") << text;
    return path;
  };
  const JobStore::GoneCheckpoint gone = {.folder = "step-1"};
  const auto path = [&] {
    OpenJobStore store(journal(), options_with_broken);
    submit(store, "a");
    run_through(store, "a");
    const auto written = write("{}");
    // As a daemon that is killed between the record and the files.
    EXPECT_THROW(store.delete_checkpoint("a", gone, key("delete", "a")), IoError);
    EXPECT_THROW(store.pin_checkpoint({"a", "step-1"}, "an export"), NotFound) << "it is deleted";
    EXPECT_THROW(store.delete_checkpoint("a", gone, key("delete", "a")), IoError) << "a repeat";
    return written;
  }();
  EXPECT_TRUE(std::filesystem::exists(path));
  { OpenJobStore store(journal(), options_with_broken); }
  EXPECT_TRUE(std::filesystem::exists(path)) << "a start goes on without it";
  {
    const auto store = open();
    EXPECT_FALSE(std::filesystem::exists(path));
    write("another one of this step");
    EXPECT_NO_THROW(store->pin_checkpoint({"a", "step-1"}, "an export"));
    store->delete_checkpoint("a", gone, key("delete", "a"));
    EXPECT_TRUE(std::filesystem::exists(path)) << "a late repeat";
  }
  const auto store = open();
  EXPECT_TRUE(std::filesystem::exists(path)) << "the record is there still";
  store->delete_checkpoint("a", gone, key("delete-anew", "a"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(JobStoreRemovalTest, WhatAKilledDaemonLeftIsRemovedAtTheNextStart) {
  {
    const auto store = open();
    submit(*store, "a");
    run_through(*store, "a");
  }
  make_folder("a");
  const auto job = folder_ / "jobs/a";
  const std::vector<std::string> leftovers = {"checkpoints/.old-step-3", "checkpoints/.tmp-step-4",
                                              ".old-hf", ".hf-step-1.123.tmp"};
  for (const std::string& name : leftovers) {
    std::filesystem::create_directories(job / name);
    std::ofstream(job / name / "half") << "x";
  }
  std::filesystem::create_directories(job / "hf-step-1");
  open();
  for (const std::string& name : leftovers)
    EXPECT_FALSE(std::filesystem::exists(job / name)) << name;
  EXPECT_TRUE(std::filesystem::exists(job / "checkpoints/step-1"));
  EXPECT_TRUE(std::filesystem::exists(job / "hf-step-1"));
}

TEST_F(JobStoreRemovalTest, AFolderThatCannotBeReadKeepsNoDaemonFromStarting) {
  {
    const auto store = open();
    submit(*store, "a");
    run_through(*store, "a");
  }
  std::filesystem::create_directories(folder_ / "jobs/a");
  std::filesystem::create_symlink("checkpoints", folder_ / "jobs/a/checkpoints");  // to itself
  EXPECT_NO_THROW(open());
}

TEST_F(JobStoreRemovalTest, DeletingFreesNameAndFolderForGood) {
  std::filesystem::path folder;
  {
    const auto store = open();
    folder = make_folder("a");  // by somebody else, while the daemon runs
    EXPECT_THROW(submit(*store, "a"), AlreadyExists);
    std::filesystem::remove_all(folder);
    submit(*store, "a", key("submit", "a"));
    make_folder("a");
    EXPECT_THROW(store->remove("a", {}), FailedPrecondition) << "it has not ended";
    EXPECT_THROW(store->remove("nobody", {}), NotFound);
    run_through(*store, "a");
    submit_after(*store, "user", "a");
    try {
      store->remove("a", {});
      FAIL();
    } catch (const FailedPrecondition& error) {
      EXPECT_EQ(error.reason(), "JOB_IN_USE");
    }
    EXPECT_TRUE(std::filesystem::exists(folder));
    store->cancel("user", {});
    store->remove("a", key("delete", "a"));
    EXPECT_FALSE(std::filesystem::exists(folder));
    EXPECT_THROW(store->get("a"), NotFound);
    store->remove("a", key("delete", "a"));
    EXPECT_THROW(store->remove("a", {}), NotFound);
  }
  const auto store = open();
  EXPECT_THROW(store->get("a"), NotFound);
  store->remove("a", key("delete", "a"));
  try {
    submit(*store, "a", key("submit", "a"));
    FAIL() << "a repeat of the old request makes no new job";
  } catch (const NotFound& error) {
    EXPECT_EQ(error.reason(), "JOB_DELETED");
  }
  submit(*store, "a", key("submit-2", "a"));
  make_folder("a");
  store->remove("a", key("delete", "a"));
  EXPECT_EQ(store->get("a").state(), v1::JOB_STATE_QUEUED) << "the repeat was for the first one";
  EXPECT_TRUE(std::filesystem::exists(folder));
}

TEST_F(JobStoreRemovalTest, ADeletionThatStoppedHalfWayIsFinishedAtTheNextStart) {
  testing::FailpointFileSystem broken([](int) { throw IoError("the disk does not answer"); });
  JobStore::Options options_with_broken = options();
  options_with_broken.files = &broken;
  const auto folder = [&] {
    OpenJobStore store(journal(), options_with_broken);
    submit(store, "a");
    run_through(store, "a");
    const auto made = make_folder("a");
    EXPECT_THROW(store.remove("a", key("delete", "a")), IoError);
    EXPECT_THROW(store.get("a"), NotFound);
    EXPECT_THROW(submit(store, "a"), AlreadyExists) << "its name is not free yet";
    EXPECT_THROW(store.remove("a", key("delete", "a")), IoError) << "a repeat tries again";
    return made;
  }();
  EXPECT_TRUE(std::filesystem::exists(folder));
  { OpenJobStore store(journal(), options_with_broken); }
  EXPECT_TRUE(std::filesystem::exists(folder)) << "a start goes on without it";
  const auto store = open();
  EXPECT_FALSE(std::filesystem::exists(folder));
  EXPECT_EQ(submit(*store, "a").name(), "jobs/a");
}

TEST_F(JobStoreRemovalTest, ALabelBesideADeletionLeavesTheJournalWhole) {
  {
    const auto store = open();
    for (int i = 0; i < 20; ++i) {
      const std::string id = fmt::format("a{}", i);
      submit(*store, id);
      run_through(*store, id);
      std::thread other([&] {
        try {
          while (true) store->label(id, JobStore::Labels(), {}, {});
        } catch (const NotFound&) {
          return;  // it is deleted
        }
      });
      store->remove(id, {});
      other.join();
    }
  }
  EXPECT_NO_THROW(open());
}

TEST_F(JobStoreRemovalTest, RetentionKeepsTheNewestAndTheYoung) {
  const auto store = open();
  for (const char* id : {"a", "b", "c"}) {
    submit(*store, id);
    run_through(*store, id);
  }
  submit(*store, "waiting");
  const auto now = std::chrono::system_clock::now();
  EXPECT_TRUE(store->expired({}, now).empty());
  EXPECT_EQ(store->expired({2, 0s}, now), std::vector<std::string>{"a"});
  EXPECT_TRUE(store->expired({3, 60s}, now).empty());
  EXPECT_EQ(store->expired({0, 60s}, now + 70s), (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(JobStoreRemovalTest, RetentionDeletesWhenAJobEnds) {
  const auto store = open();
  submit_after(*store, "user", "a");
  const Retention retention(*store, {1, 0s});
  for (const char* id : {"a", "b", "c"}) {
    submit(*store, id);
    run_through(*store, id);
    make_folder(id);
  }
  const auto gone = [&] {
    std::vector<std::string> names;
    for (const auto& job : store->list(0, 10).first) names.push_back(job.name());
    return names == std::vector<std::string>{"jobs/user", "jobs/a", "jobs/c"};
  };
  EXPECT_TRUE(test::eventually(gone)) << "a is what user begins with";
  EXPECT_TRUE(std::filesystem::exists(folder_ / "jobs/a"));
}

}  // namespace
}  // namespace meshloom::control
