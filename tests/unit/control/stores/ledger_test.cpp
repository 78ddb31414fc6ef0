// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

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

/// Keeps nothing, so a journal that was compacted is empty.
class HearingStore final : public JournaledStore {
 public:
  void snapshot(const Ledger::Visit&) const override {
    // There is no store that would have the records of a large journal.
    if (!compacts) throw IoError("this test compacts no journal");
  }
  void on_durable(Ledger::Ticket upto) override {
    const std::lock_guard lock(gate);
    durable = upto;
  }
  void on_refused(Ledger::Ticket ticket) override { refused.insert(ticket); }

  std::mutex gate;               ///< holds the ledger's thread up
  std::vector<std::string> ids;  ///< of jobs, in a replay
  std::atomic<Ledger::Ticket> durable{0};
  std::set<Ledger::Ticket> refused;
  bool compacts = true;

 private:
  void apply(const v1::JournalRecord& record) override {
    if (record.has_job()) ids.push_back(record.job().name());
  }
  void settle_after_restart() override {}
};

class LedgerTest : public ::testing::Test {
 protected:
  /// Runs `body` with a ledger whose one store only hears what becomes of records.
  void with_ledger(const std::function<void(Ledger&)>& body) {
    Ledger ledger(folder_ / "journal", {&store_});
    ledger.start();
    body(ledger);
  }
  std::vector<std::string> ids() {
    HearingStore reader;
    const Ledger ledger(folder_ / "journal", {&reader});
    return reader.ids;
  }
  std::uintmax_t size() const { return std::filesystem::file_size(folder_ / "journal"); }

  test::TempFolder folder_;
  HearingStore store_;
  std::atomic<Ledger::Ticket>& durable_ = store_.durable;
  std::set<Ledger::Ticket>& refused_ = store_.refused;
  bool& compacts_ = store_.compacts;
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

/// A record of so many bytes.
v1::JournalRecord sized(const std::string& id, std::size_t bytes) {
  v1::JournalRecord record = named(id);
  record.mutable_job()->set_hold_reason(std::string(bytes, 'x'));
  record.mutable_job()->mutable_hold_reason()->resize(bytes - (record.ByteSizeLong() - bytes));
  EXPECT_EQ(record.ByteSizeLong(), bytes);
  return record;
}

std::string wait_reason(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    const auto record = error.metadata().find("record");
    return error.reason() + (record == error.metadata().end() ? "" : " of " + record->second);
  }
  return "none";
}

TEST_F(LedgerTest, ARecordThatItCanNeverTakeIsSetAsideAndTheOthersGoOn) {
  with_ledger([&](Ledger& ledger) {
    const Ledger::Ticket before = ledger.append(named("before"));
    const Ledger::Ticket kept = ledger.append(sized("large", Journal::kLongestRecord + 1));
    const Ledger::Ticket refused =
        ledger.append(sized("refused", Journal::kLongestRecord + 1), Ledger::Need::kRefusable);
    const Ledger::Ticket after = ledger.append(named("after"));
    EXPECT_TRUE(ledger.wait(before));
    EXPECT_EQ(wait_reason([&] { ledger.wait(kept); }), "RECORD_TOO_LARGE of large");
    EXPECT_FALSE(ledger.wait_kept(kept));
    EXPECT_EQ(wait_reason([&] { ledger.wait(refused); }), "RECORD_TOO_LARGE of refused");
    EXPECT_EQ(refused_, std::set<Ledger::Ticket>{refused});
    EXPECT_TRUE(ledger.wait(after));
    ASSERT_EQ(ledger.troubles().size(), 1u);
    EXPECT_EQ(ledger.troubles()[0].rfind("large is not written down", 0), 0u)
        << ledger.troubles()[0];
    EXPECT_TRUE(ledger.wait(ledger.append(sized("large", 1000))));
    EXPECT_TRUE(ledger.troubles().empty()) << "what it says now is there";
  });
  EXPECT_EQ(ids(), (std::vector<std::string>{"before", "after", "large"}));
}

TEST_F(LedgerTest, TakesRecordsUpToTheJournalsLongest) {
  compacts_ = false;
  with_ledger([&](Ledger& ledger) {
    const Ledger::Ticket below = ledger.append(sized("below", Journal::kLongestRecord - 1));
    const Ledger::Ticket just = ledger.append(sized("just", Journal::kLongestRecord));
    const Ledger::Ticket above = ledger.append(sized("above", Journal::kLongestRecord + 1));
    EXPECT_TRUE(ledger.wait(below));
    EXPECT_TRUE(ledger.wait(just));
    EXPECT_EQ(wait_reason([&] { ledger.wait(above); }), "RECORD_TOO_LARGE of above");
  });
  EXPECT_EQ(ids(), (std::vector<std::string>{"below", "just"}));
}

TEST_F(LedgerTest, WhatIsBehindALargeRecordOnAFullDiskDoesNotWaitForEver) {
  compacts_ = false;
  with_ledger([&](Ledger& ledger) {
    EXPECT_TRUE(ledger.wait(ledger.append(named("before"))));
    {
      const test::FileSizeLimit full(size() + 1000);
      const Ledger::Ticket large = ledger.append(sized("large", 5 << 20));
      const Ledger::Ticket kept = ledger.append(named("kept"));
      const Ledger::Ticket submit = ledger.append(named("submit"), Ledger::Need::kRefusable);
      const Ledger::Ticket urgent = ledger.append(named("x"), Ledger::Need::kRefusableUrgent);
      EXPECT_FALSE(ledger.wait(large));
      EXPECT_FALSE(ledger.wait(kept));
      EXPECT_NE(wait_reason([&] { ledger.wait(submit); }), "none");
      EXPECT_NE(wait_reason([&] { ledger.wait(urgent); }), "none");
      ASSERT_EQ(ledger.troubles().size(), 1u);
      EXPECT_EQ(ledger.troubles()[0].rfind("changes wait", 0), 0u) << ledger.troubles()[0];
    }
    EXPECT_TRUE(ledger.wait(ledger.append(named("after"))));
    EXPECT_TRUE(ledger.troubles().empty());
  });
  EXPECT_EQ(ids(), (std::vector<std::string>{"before", "large", "kept", "after"}));
}

TEST_F(LedgerTest, OfABatchThatDoesNotFitWhatComesFirstIsWritten) {
  Ledger ledger(folder_ / "journal", {&store_});
  ledger.start();
  EXPECT_TRUE(ledger.wait(ledger.append(named("before"))));
  const test::FileSizeLimit full(size() + 2000);
  Ledger::Ticket small = 0, large = 0;
  {
    const std::lock_guard lock(store_.gate);
    const std::uintmax_t before = size();
    ledger.append(named("holds the writer up"));
    while (size() == before) std::this_thread::yield();
    small = ledger.append(named("small"));
    ledger.append(named("small too"));
    large = ledger.append(sized("large", 1 << 20));
  }
  EXPECT_FALSE(ledger.wait(large));
  EXPECT_TRUE(ledger.wait(small));
  EXPECT_EQ(durable_, large - 1);
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

/// What stores hear, in order. Any thread may call any method.
class Heard {
 public:
  void add(const std::string& what) {
    const std::lock_guard lock(mutex_);
    items_.push_back(what);
  }
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(items_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> items_;
};

/// Tells "ID WHAT" of all that it hears.
class TellingStore final : public JournaledStore {
 public:
  TellingStore(std::string id, Heard& heard) : id_(std::move(id)), heard_(heard) {}

  void snapshot(const Ledger::Visit& append) const override {
    tell("snapshot");
    append(named(id_ + " keeps"));
  }
  void on_durable(Ledger::Ticket upto) override {
    JournaledStore::on_durable(upto);
    if (upto > 1) tell("durable");  // the first record is of the ledger's own epochs
  }
  void on_refused(Ledger::Ticket ticket) override {
    JournaledStore::on_refused(ticket);
    tell("refused");
  }
  void put(const std::string& text, Ledger::Need need) { commit(named(text), need); }

 private:
  void tell(const std::string& what) const { heard_.add(id_ + " " + what); }
  void apply(const v1::JournalRecord& record) override {
    if (record.has_job()) tell("applies " + record.job().name());
  }
  void settle_after_restart() override { tell("settles"); }

  const std::string id_;
  Heard& heard_;
};

TEST_F(LedgerTest, AllStoresHearOfARecordInTheirOrder) {
  using Items = std::vector<std::string>;
  Heard heard;
  TellingStore first("1", heard), second("2", heard);
  {
    Ledger ledger(folder_ / "journal", {&first, &second});
    EXPECT_EQ(heard.take(), Items{}) << "there was nothing to replay";
    ledger.start();
    EXPECT_EQ(heard.take(), (Items{"1 settles", "2 settles", "1 snapshot", "2 snapshot"}));
    second.put("refusable", Ledger::Need::kRefusable);
    EXPECT_EQ(heard.take(), (Items{"1 durable", "2 applies refusable", "2 durable"}))
        << "it takes effect in its own store alone, once it is durable";
    first.put("kept", Ledger::Need::kKept);
    EXPECT_EQ(heard.take(), (Items{"1 applies kept", "1 durable", "2 durable"}))
        << "and this one at once";
    {
      const test::FileSizeLimit full(size() + 1);
      EXPECT_THROW(second.put("refused", Ledger::Need::kRefusable), Error);
    }
    first.put("after", Ledger::Need::kKept);
    const Items items = heard.take();
    EXPECT_EQ(std::count(items.begin(), items.end(), "2 applies refused"), 0);
    ASSERT_GE(items.size(), 2u);
    EXPECT_EQ((Items{items[0], items[1]}), (Items{"1 refused", "2 refused"}));
  }
  heard.take();
  const Ledger again(folder_ / "journal", {&first, &second});
  EXPECT_EQ(heard.take(),
            (Items{"1 applies 1 keeps", "2 applies 1 keeps", "1 applies 2 keeps",
                   "2 applies 2 keeps", "1 applies refusable", "2 applies refusable",
                   "1 applies kept", "2 applies kept", "1 applies after", "2 applies after"}))
      << "each record goes to each store";
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

}  // namespace
}  // namespace meshloom::control
