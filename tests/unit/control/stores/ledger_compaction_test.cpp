// SPDX-License-Identifier: Apache-2.0
// A ledger that compacts its journal while records are appended.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <optional>
#include <thread>

#include "daemon/control/stores/journaled_store.h"
#include "daemon/control/stores/ledger.h"
#include "tests/support/full_disk.h"
#include "tests/support/temp_folder.h"

namespace meshloom::control {
namespace {

using Stage = Ledger::CompactionStage;
using Texts = std::map<std::string, std::string>;

/// Texts by name. That one is made longer says another thing when it is replayed twice.
class TextStore : public JournaledStore {
 public:
  Texts texts() const {
    const std::lock_guard lock(mutex_);
    return texts_;
  }
  void put(const std::string& name, const std::string& text) {
    v1::JournalRecord record;
    record.mutable_job()->set_name(name);
    record.mutable_job()->set_hold_reason(text);
    commit(record, Ledger::Need::kKept);
  }
  void make_longer(const std::string& name, std::int64_t number) {
    v1::JournalRecord record;
    record.mutable_job_edit()->set_job(name);
    record.mutable_job_edit()->set_step_limit(number);
    commit(record);
  }
  void remove(const std::string& name) {
    v1::JournalRecord record;
    record.set_deleted_plan(name);
    commit(record, Ledger::Need::kRefusableUrgent);
  }

  mutable std::atomic<int> snapshots = 0;

  void snapshot(const Ledger::Visit& append) const override {
    ++snapshots;
    for (const auto& [name, text] : texts()) {
      v1::JournalRecord record;
      record.mutable_job()->set_name(name);
      record.mutable_job()->set_hold_reason(text);
      append(record);
    }
  }

 private:
  void apply(const v1::JournalRecord& record) override {
    if (record.has_job()) texts_[record.job().name()] = record.job().hold_reason();
    if (record.has_job_edit())
      texts_.at(record.job_edit().job()) += std::to_string(record.job_edit().step_limit()) + " ";
    texts_.erase(record.deleted_plan());
  }
  void settle_after_restart() override {}

  Texts texts_;
};

/// Counts the stages of compactions, and holds one up where a test says so.
class CompactionGate {
 public:
  void reach(Stage stage) {
    std::unique_lock lock(mutex_);
    ++reached_[stage];
    changed_.notify_all();
    changed_.wait(lock, [&] { return held_ != stage; });
  }
  void hold(std::optional<Stage> stage) {
    const std::lock_guard lock(mutex_);
    held_ = stage;
    changed_.notify_all();
  }
  void open() { hold({}); }
  int count(Stage stage) {
    const std::lock_guard lock(mutex_);
    return reached_[stage];
  }
  void await(Stage stage, int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_[stage] >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Stage> held_;
  std::map<Stage, int> reached_;
};

/// A store on its ledger. The start has one compaction.
class OpenStore {
 public:
  explicit OpenStore(const std::filesystem::path& journal)
      : ledger_(std::make_unique<Ledger>(journal, std::vector<JournaledStore*>{&store},
                                         [this](Stage stage) { gate.reach(stage); })) {
    ledger_->start();
  }

  /// Makes the journal longer until a compaction begins, which is with a snapshot.
  void grow() {
    for (const int before = store.snapshots; store.snapshots == before;)
      store.put("grown", std::string(100'000, 'g'));
  }
  /// Waits for all compactions that have begun, of which none may fail.
  void await_compactions() { gate.await(Stage::kInPlace, store.snapshots); }
  void close() { ledger_.reset(); }

  TextStore store;
  CompactionGate gate;

 private:
  std::unique_ptr<Ledger> ledger_;
};

class LedgerCompactionTest : public ::testing::Test {
 protected:
  std::filesystem::path journal() const { return folder_ / "journal"; }
  bool has_leftover() const { return std::filesystem::exists(folder_ / "journal.new"); }
  /// What a start after a kill at this moment knows. It leaves no half-written file either.
  Texts after_kill() const {
    const test::TempFolder killed;
    std::filesystem::copy(folder_.path(), killed.path());
    const OpenStore next(killed / "journal");
    EXPECT_FALSE(std::filesystem::exists(killed / "journal.new"));
    return next.store.texts();
  }
  /// One change of each kind, `number` in its traces.
  static void change(TextStore& store, int number) {
    const std::string name = std::to_string(number);
    store.put(name, "put ");
    store.put(name + " for a while", std::string(3000, 'x'));
    store.make_longer(name, number);
    store.make_longer("0", number);
    store.remove(name + " for a while");
  }

  test::TempFolder folder_;
};

TEST_F(LedgerCompactionTest, WritersGoOnWhileItIsStuck) {
  for (const Stage stuck : {Stage::kBegun, Stage::kWritten}) {
    OpenStore opened(journal());
    opened.gate.hold(stuck);
    opened.grow();
    opened.gate.await(stuck, 2);
    for (int i = 0; i < 20; ++i) change(opened.store, i);
    EXPECT_EQ(opened.gate.count(Stage::kInPlace), 1) << "that of the start";
    EXPECT_EQ(after_kill(), opened.store.texts()) << "all of them were acknowledged";
    opened.gate.open();
    opened.gate.await(Stage::kInPlace, 2);
    EXPECT_EQ(after_kill(), opened.store.texts());
  }
}

TEST_F(LedgerCompactionTest, WhatIsAppendedMeanwhileIsThereAsWithoutIt) {
  constexpr int kSome = 5;
  {
    OpenStore opened(journal());
    int number = 0;
    const auto change_some = [&] {
      for (int i = 0; i < kSome; ++i) change(opened.store, number++);
    };
    change_some();
    for (int round = 2; round < 5; ++round) {
      opened.gate.hold(Stage::kBegun);
      opened.grow();
      opened.gate.await(Stage::kBegun, round);
      change_some();
      opened.gate.hold(Stage::kWritten);
      opened.gate.await(Stage::kWritten, round);
      change_some();
      opened.gate.open();
      opened.gate.await(Stage::kInPlace, round);
      change_some();
    }
  }
  const test::TempFolder plain;
  {
    OpenStore opened(plain / "journal");
    for (int i = 0; i < 10 * kSome; ++i) change(opened.store, i);
    opened.store.put("grown", std::string(100'000, 'g'));
    EXPECT_EQ(opened.gate.count(Stage::kBegun), 1) << "that of the start";
  }
  EXPECT_EQ(OpenStore(journal()).store.texts(), OpenStore(plain / "journal").store.texts());
}

TEST_F(LedgerCompactionTest, AKillAtAnyStageLosesNothing) {
  OpenStore opened(journal());
  opened.gate.hold(Stage::kBegun);
  opened.grow();
  opened.gate.await(Stage::kBegun, 2);
  change(opened.store, 0);
  EXPECT_EQ(after_kill(), opened.store.texts());
  opened.gate.hold(Stage::kWritten);
  opened.gate.await(Stage::kWritten, 2);
  change(opened.store, 1);
  EXPECT_TRUE(has_leftover());
  EXPECT_EQ(after_kill(), opened.store.texts());
  opened.gate.hold(Stage::kInPlace);
  opened.gate.await(Stage::kInPlace, 2);
  EXPECT_FALSE(has_leftover());
  EXPECT_EQ(after_kill(), opened.store.texts());
  opened.gate.open();
  change(opened.store, 2);
  EXPECT_EQ(after_kill(), opened.store.texts());
}

TEST_F(LedgerCompactionTest, ManyWritersAndManyCompactions) {
  constexpr int kThreads = 4;
  constexpr int kEach = 100;
  Texts texts;
  {
    OpenStore opened(journal());
    std::vector<std::thread> threads(kThreads);
    for (int t = 0; t < kThreads; ++t)
      threads[static_cast<std::size_t>(t)] = std::thread([&, t] {
        const std::string name = std::to_string(t);
        opened.store.put(name, "");
        for (int i = 0; i < kEach; ++i) {
          opened.store.put(name + " large", std::string(20'000, static_cast<char>('a' + i % 26)));
          opened.store.make_longer(name, i);
        }
      });
    for (auto& thread : threads) thread.join();
    EXPECT_GE(opened.gate.count(Stage::kBegun), 2);
    texts = opened.store.texts();
  }
  EXPECT_FALSE(has_leftover());
  EXPECT_EQ(OpenStore(journal()).store.texts(), texts);
}

TEST_F(LedgerCompactionTest, TheJournalStaysInProportionToWhatLives) {
  OpenStore opened(journal());
  std::uintmax_t largest = 0;
  for (int i = 0; i < 1000; ++i) {
    opened.store.put("text", std::string(10'000, static_cast<char>('a' + i % 26)));
    largest = std::max(largest, std::filesystem::file_size(journal()));
    opened.await_compactions();
  }
  EXPECT_LT(largest, 2u << 20) << "10 MB were appended";
  EXPECT_GE(opened.gate.count(Stage::kInPlace), 5);
  EXPECT_EQ(after_kill(), opened.store.texts());
}

TEST_F(LedgerCompactionTest, OneThatFailsLeavesTheJournalAndIsTriedAgain) {
  OpenStore opened(journal());
  std::filesystem::create_directories(folder_ / "journal.new/in_the_way");
  opened.grow();
  opened.gate.await(Stage::kFailed, 1);
  change(opened.store, 0);
  EXPECT_EQ(opened.gate.count(Stage::kInPlace), 1);
  std::filesystem::remove_all(folder_ / "journal.new");
  EXPECT_EQ(after_kill(), opened.store.texts());
  opened.grow();
  opened.gate.await(Stage::kInPlace, 2);
  EXPECT_EQ(after_kill(), opened.store.texts());
  EXPECT_LT(std::filesystem::file_size(journal()), 2u << 20);
}

TEST_F(LedgerCompactionTest, AFullDiskRefusesItAndTakesWhatMattersMost) {
  const test::SmallDisk disk(16);
  if (!disk.mounted()) GTEST_SKIP() << "needs root for a disk of its own";
  Texts texts;
  {
    OpenStore opened(disk / "journal");
    opened.gate.hold(Stage::kBegun);
    opened.grow();
    opened.gate.await(Stage::kBegun, 2);
    disk.fill();
    opened.gate.open();
    opened.gate.await(Stage::kFailed, 1);
    EXPECT_FALSE(std::filesystem::exists(disk / "journal.new"));
    opened.store.put("kept", "on the reserve");
    disk.free();
    change(opened.store, 0);
    opened.grow();
    opened.gate.await(Stage::kInPlace, 2);
    texts = opened.store.texts();
  }
  EXPECT_EQ(OpenStore(disk / "journal").store.texts(), texts);
}

TEST_F(LedgerCompactionTest, OneThatIsUnderWayAtTheEndLeavesNoFile) {
  for (const Stage stuck : {Stage::kBegun, Stage::kWritten}) {
    OpenStore opened(journal());
    opened.gate.hold(stuck);
    opened.grow();
    opened.gate.await(stuck, 2);
    change(opened.store, 0);
    std::thread closing([&] { opened.close(); });
    opened.gate.open();
    closing.join();
    EXPECT_FALSE(has_leftover());
    EXPECT_EQ(after_kill(), opened.store.texts());
  }
}

}  // namespace
}  // namespace meshloom::control
