// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/ledger.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "daemon/control/stores/journaled_store.h"
#include "kernels/base/error.h"
#include "tests/support/full_disk.h"
#include "tests/support/temp_folder.h"

namespace meshloom::control {
namespace {

v1::JournalRecord named(const std::string& id) {
  v1::JournalRecord record;
  record.mutable_job()->set_name(id);
  return record;
}

class LedgerTest : public ::testing::Test {
 protected:
  /// Runs `body` with a ledger below which there is no store.
  void with_ledger(const std::function<void(Ledger&)>& body) {
    Ledger ledger(folder_ / "journal", [](const v1::JournalRecord&) {});
    ledger.start({[](const Ledger::Visit&) {}, [this](Ledger::Ticket upto) { durable_ = upto; },
                  [this](Ledger::Ticket ticket) { refused_.insert(ticket); }});
    body(ledger);
  }
  std::vector<std::string> ids() {
    std::vector<std::string> found;
    const Ledger ledger(folder_ / "journal", [&](const v1::JournalRecord& record) {
      if (record.has_job()) found.push_back(record.job().name());
    });
    return found;
  }
  std::uintmax_t size() const { return std::filesystem::file_size(folder_ / "journal"); }

  test::TempFolder folder_;
  std::atomic<Ledger::Ticket> durable_{0};
  std::set<Ledger::Ticket> refused_;
};

TEST_F(LedgerTest, WhatWasWaitedForIsReadBackInOrder) {
  constexpr int kThreads = 8;
  constexpr int kEach = 50;
  with_ledger([&](Ledger& ledger) {
    std::vector<std::thread> threads(kThreads);
    for (int t = 0; t < kThreads; ++t)
      threads[static_cast<std::size_t>(t)] = std::thread([&, t] {
        for (int i = 0; i < kEach; ++i) {
          const Ledger::Ticket ticket = ledger.append(named(fmt::format("{} {}", t, i)));
          EXPECT_TRUE(ledger.wait(ticket));
          EXPECT_GE(durable_, ticket) << "the store hears of it first";
        }
      });
    for (auto& thread : threads) thread.join();
  });
  std::vector<int> next(kThreads, 0);
  for (const std::string& id : ids()) {
    const int thread = std::stoi(id);
    EXPECT_EQ(id, fmt::format("{} {}", thread, next[static_cast<std::size_t>(thread)]++));
  }
  EXPECT_EQ(next, std::vector<int>(kThreads, kEach));
}

TEST_F(LedgerTest, WhatFailsIsRefusedOrTriedAgain) {
  with_ledger([&](Ledger& ledger) {
    EXPECT_TRUE(ledger.wait(ledger.append(named("before"))));
    Ledger::Ticket kept = 0;
    {
      const test::FileSizeLimit full(size() + 1);
      const Ledger::Ticket submit = ledger.append(named("submit"), Ledger::Need::kRefusable);
      kept = ledger.append(named("kept"));
      const Ledger::Ticket urgent = ledger.append(named("x"), Ledger::Need::kRefusableUrgent);
      EXPECT_THROW(ledger.wait(submit), Error);
      EXPECT_FALSE(ledger.wait(kept));
      EXPECT_THROW(ledger.wait(urgent), Error);
      EXPECT_EQ(refused_, (std::set<Ledger::Ticket>{submit, urgent}));
      EXPECT_LT(durable_, kept);
    }
    EXPECT_TRUE(ledger.wait(ledger.append(named("after"))));
    EXPECT_GT(durable_, kept);
  });
  EXPECT_EQ(ids(), (std::vector<std::string>{"before", "kept", "after"}));
}

TEST_F(LedgerTest, WhatIsLeftIsWrittenWhenTheDiskIsBackEvenWithoutANewRecord) {
  with_ledger([&](Ledger& ledger) {
    Ledger::Ticket kept = 0;
    {
      const test::FileSizeLimit full(size() + 1);
      kept = ledger.append(named("kept"));
      EXPECT_FALSE(ledger.wait(kept));
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (durable_ < kept && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(durable_, kept);
  });
  EXPECT_EQ(ids(), (std::vector<std::string>{"kept"}));
}

TEST_F(LedgerTest, ARequestIsKnownAtOnceOrOnceItsRecordIsDurable) {
  const auto asked = [](const std::string& id) {
    v1::JournalRecord record;
    record.mutable_request()->set_request_id(id);
    record.mutable_request()->set_resource("jobs/a");
    return record;
  };
  with_ledger([&](Ledger& ledger) {
    {
      const test::FileSizeLimit full(size() + 1);
      const Ledger::Ticket kept = ledger.append(asked("kept"));
      EXPECT_TRUE(ledger.find_request({"kept", ""}));
      EXPECT_THROW(ledger.find_request({"kept", "other"}), InvalidArgument);
      const Ledger::Ticket refused = ledger.append(asked("refused"), Ledger::Need::kRefusable);
      EXPECT_THROW(ledger.wait(refused), Error);
      EXPECT_FALSE(ledger.find_request({"refused", ""}));
      ledger.wait(kept);
    }
    ledger.wait(ledger.append(asked("later"), Ledger::Need::kRefusable));
    EXPECT_TRUE(ledger.find_request({"later", ""}));
    EXPECT_FALSE(ledger.find_request({"", ""}));
    v1::JournalRecord removal;
    removal.set_deleted_job("a");
    EXPECT_FALSE(ledger.find_request({"later", ""})->gone());
    ledger.wait(ledger.append(std::move(removal), Ledger::Need::kRefusableUrgent));
  });
  // This one replays what was appended, the next one the snapshot that this one begins with.
  with_ledger([&](Ledger& ledger) { EXPECT_TRUE(ledger.find_request({"kept", ""})->gone()); });
  with_ledger([&](Ledger& ledger) {
    EXPECT_TRUE(ledger.find_request({"later", ""})->gone());
    EXPECT_FALSE(ledger.find_request({"refused", ""}));
  });
}

TEST_F(LedgerTest, NoEpochIsGivenOutTwice) {
  std::int64_t last = 0;
  for (int start = 0; start < 3; ++start)
    with_ledger([&](Ledger& ledger) {
      for (int i = 0; i < 100; ++i) {
        while (!ledger.can_give_epoch()) std::this_thread::yield();
        const std::int64_t epoch = ledger.give_epoch();
        EXPECT_GT(epoch, last);
        EXPECT_EQ(ledger.newest_epoch(), epoch);
        last = epoch;
      }
    });
}

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

  void snapshot(const Ledger::Visit& append) const override {
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
      : ledger_(std::make_unique<Ledger>(
            journal, [this](const v1::JournalRecord& record) { store.replay(record); })) {
    store.join(*ledger_);
    ledger_->start({[this](const Ledger::Visit& append) {
                      ++snapshots_;
                      store.snapshot(append);
                    },
                    [this](Ledger::Ticket upto) { store.on_durable(upto); },
                    [this](Ledger::Ticket ticket) { store.on_refused(ticket); },
                    [this](Stage stage) { gate.reach(stage); }});
  }

  /// Makes the journal longer until a compaction begins, which is with a snapshot.
  void grow() {
    for (const int before = snapshots_; snapshots_ == before;)
      store.put("grown", std::string(100'000, 'g'));
  }
  /// Waits for all compactions that have begun, of which none may fail.
  void await_compactions() { gate.await(Stage::kInPlace, snapshots_); }
  void close() { ledger_.reset(); }

  TextStore store;
  CompactionGate gate;

 private:
  std::atomic<int> snapshots_ = 0;
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
