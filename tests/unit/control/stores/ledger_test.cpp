// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/ledger.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "kernels/base/error.h"
#include "tests/support/full_disk.h"
#include "tests/support/temp_folder.h"

namespace meshloom::control {
namespace {

v1::JournalRecord named(const std::string& id, std::size_t padding = 0) {
  v1::JournalRecord record;
  record.mutable_job()->set_name(id);
  record.mutable_job()->set_hold_reason(std::string(padding, 'x'));
  return record;
}

class LedgerTest : public ::testing::Test {
 protected:
  /// Runs `body` with a ledger whose snapshot is the newest `live_` records.
  void with_ledger(const std::function<void(Ledger&)>& body) {
    Ledger ledger(folder_ / "journal", [](const v1::JournalRecord&) {});
    ledger.start({[this](const Ledger::Visit& append) {
                    ++snapshots_;
                    for (const auto& record : live_) append(record);
                  },
                  [this](Ledger::Ticket upto) { durable_ = upto; },
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
  std::vector<v1::JournalRecord> live_;
  int snapshots_ = 0;
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

TEST_F(LedgerTest, TheJournalStaysInProportionToWhatLives) {
  live_ = {named("live", 2000)};
  constexpr std::size_t kRecord = 10'000;
  std::uintmax_t largest = 0;
  with_ledger([&](Ledger& ledger) {
    for (int i = 0; i < 1000; ++i) {
      live_ = {named(std::to_string(i), kRecord)};
      ledger.wait(ledger.append(live_[0]));
      largest = std::max(largest, size());
    }
  });
  EXPECT_LT(largest, 3u << 20) << "10 MB were appended";
  EXPECT_GE(snapshots_, 5);
  EXPECT_EQ(ids().back(), "999");
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

}  // namespace
}  // namespace meshloom::control
