// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/journal.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <random>
#include <sstream>
#include <vector>

#include "kernels/base/error.h"
#include "tests/support/file_text.h"
#include "tests/support/full_disk.h"
#include "tests/support/temp_folder.h"

namespace meshloom::control {
namespace {

using Records = std::vector<std::string>;

Records replay(const std::filesystem::path& path) {
  Records records;
  const Journal journal(path, [&](std::string_view payload) { records.emplace_back(payload); });
  return records;
}

void write_records(const std::filesystem::path& path, const Records& records) {
  Journal journal(path, [](std::string_view) {});
  for (const auto& record : records) journal.append(record);
}

void set_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::function<void(const Journal::Visit&)> producer(const Records& records) {
  return [records](const Journal::Visit& append) {
    for (const auto& record : records) append(record);
  };
}

void rewrite(Journal& journal, const Records& records) {
  Journal::Rewrite next(journal, producer(records));
  next.write();
  journal.switch_to(next);
}

/// What a start after a kill at this moment reads, where it also leaves nothing but the journal.
Records replay_after_kill(const std::filesystem::path& folder) {
  const test::TempFolder killed;
  std::filesystem::copy(folder, killed.path());
  Records records = replay(killed / "journal");
  EXPECT_FALSE(std::filesystem::exists(killed / "journal.new"));
  return records;
}

Records joined(Records records, const Records& more) {
  records.insert(records.end(), more.begin(), more.end());
  return records;
}

const Records kRecords{"first", "", std::string(5000, 'x'), std::string("nul\0inside", 10), "last"};

TEST(Journal, GivesBackWhatWasAppended) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  EXPECT_TRUE(replay(path).empty());
  write_records(path, {kRecords.begin(), kRecords.begin() + 2});
  write_records(path, {kRecords.begin() + 2, kRecords.end()});
  EXPECT_EQ(replay(path), kRecords);
}

TEST(Journal, EveryTornTailIsCutAndAppendingGoesOn) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  write_records(path, kRecords);
  const std::string whole = test::file_text(path);
  const std::size_t last = 16 + kRecords.back().size();
  const Records all_but_last(kRecords.begin(), kRecords.end() - 1);
  for (std::size_t cut = 1; cut <= last; ++cut) {
    set_bytes(path, whole.substr(0, whole.size() - cut));
    EXPECT_EQ(replay(path), all_but_last) << cut;
    write_records(path, {"after"});
    Records expected = all_but_last;
    expected.push_back("after");
    EXPECT_EQ(replay(path), expected) << cut;
  }
}

TEST(Journal, ATailOfZerosAndALastRecordHalfOnDiskAreTorn) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  write_records(path, kRecords);
  const std::string whole = test::file_text(path);
  set_bytes(path, whole + std::string(100, '\0'));
  EXPECT_EQ(replay(path), kRecords);
  std::string half = whole;
  half[half.size() - 2] = '\0';
  set_bytes(path, half);
  EXPECT_EQ(replay(path).size(), kRecords.size() - 1);
}

TEST(Journal, DamageInTheMiddleIsRefusedAndNothingIsChanged) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  write_records(path, kRecords);
  const std::string whole = test::file_text(path);
  const std::size_t before_last = whole.size() - 16 - kRecords.back().size();
  std::mt19937 random(3);
  for (int i = 0; i < 400; ++i) {
    std::string damaged = whole;
    const std::size_t place = random() % before_last;
    damaged[place] = static_cast<char>(damaged[place] ^ (1 << random() % 8));
    set_bytes(path, damaged);
    if (place >= 12 && place < 16) {
      EXPECT_EQ(replay(path), kRecords) << "the header's spare bytes";
      continue;
    }
    try {
      replay(path);
      FAIL() << "byte " << place;
    } catch (const Error& error) {
      EXPECT_TRUE(error.reason() == "JOURNAL_CORRUPT" || error.reason() == "JOURNAL_TOO_NEW")
          << place;
    }
    EXPECT_EQ(test::file_text(path), damaged);
  }
}

TEST(Journal, TakesRecordsUpToItsLongestAndIsAsItWasAfterALongerOne) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  const Records records{std::string(Journal::kLongestRecord - 1, 'a'),
                        std::string(Journal::kLongestRecord, 'b'), "last"};
  {
    Journal journal(path, [](std::string_view) {});
    journal.append(records[0]);
    journal.append(records[1]);
    const std::uint64_t before = journal.size();
    try {
      journal.append(std::string(Journal::kLongestRecord + 1, 'c'));
      FAIL();
    } catch (const ResourceExhausted& error) {
      EXPECT_EQ(error.reason(), Journal::kRecordTooLarge);
      EXPECT_EQ(error.metadata().at("bytes"), "16777217");
      EXPECT_EQ(error.metadata().at("limit"), "16777216");
    }
    EXPECT_EQ(journal.size(), before);
    journal.append(records[2]);
  }
  EXPECT_EQ(replay(path), records);
}

TEST(Journal, ANewerVersionIsRefused) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  write_records(path, kRecords);
  std::string bytes = test::file_text(path);
  bytes[8] = 6;
  set_bytes(path, bytes);
  try {
    replay(path);
    FAIL();
  } catch (const FailedPrecondition& error) {
    EXPECT_EQ(error.reason(), "JOURNAL_TOO_NEW");
  }
  set_bytes(path, "something else entirely");
  EXPECT_THROW(replay(path), DataLoss);
}

TEST(Journal, AnOlderVersionIsReadAndGoesOnAsThisOne) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  write_records(path, kRecords);
  std::string bytes = test::file_text(path);
  bytes[8] = 1;
  set_bytes(path, bytes);
  EXPECT_EQ(replay(path), kRecords);
  EXPECT_EQ(test::file_text(path)[8], 5);
}

TEST(Journal, OnlyAFileThatDoesNotExistIsMade) {
  const test::TempFolder folder;
  std::filesystem::create_directory(folder / "is_a_folder");
  std::filesystem::create_symlink("nowhere", folder / "link");
  std::filesystem::create_symlink("loop", folder / "loop");
  set_bytes(folder / "file", "x");
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  for (const char* name : {"is_a_folder", "link", "loop", "fifo", "file/journal"}) {
    EXPECT_THROW(replay(folder / name), IoError) << name;
    EXPECT_FALSE(std::filesystem::exists(folder / (std::string(name) + ".new"))) << name;
  }
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(test::file_text(folder / "file"), "x");
}

TEST(Journal, ALastRecordWithAWrongDigestIsKeptBeside) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  write_records(path, kRecords);
  const std::string whole = test::file_text(path);
  const std::size_t last = 16 + kRecords.back().size();
  std::string flipped = whole;
  flipped.back() ^= 1;
  for (const char* kept : {"journal.cut", "journal.cut-2"}) {
    set_bytes(path, flipped);
    {
      const Journal journal(path, [](std::string_view) {});
      EXPECT_EQ(journal.cut_file(), folder / kept);
      EXPECT_EQ(journal.cut_bytes(), last);
    }
    EXPECT_EQ(test::file_text(folder / kept), flipped.substr(flipped.size() - last));
    EXPECT_EQ(test::file_text(path), whole.substr(0, whole.size() - last));
  }
  set_bytes(path, whole.substr(0, whole.size() - 1));
  const Journal journal(path, [](std::string_view) {});
  EXPECT_FALSE(journal.cut_file().has_value()) << "it was never acknowledged";
}

TEST(Journal, EveryFlipInTheLastRecordIsRefusedOrKeptBeside) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  write_records(path, kRecords);
  const std::string whole = test::file_text(path);
  const std::size_t last = whole.size() - 16 - kRecords.back().size();
  for (std::size_t place = last; place < whole.size(); ++place) {
    std::string damaged = whole;
    damaged[place] = static_cast<char>(damaged[place] ^ (1 << place % 8));
    set_bytes(path, damaged);
    if (place < last + 8) {
      EXPECT_THROW(replay(path), DataLoss) << "its length, or where it lies, is not known";
      EXPECT_EQ(test::file_text(path), damaged);
      continue;
    }
    EXPECT_EQ(replay(path).size(), kRecords.size() - 1);
    EXPECT_EQ(test::file_text(folder / "journal.cut"), damaged.substr(last));
    std::filesystem::remove(folder / "journal.cut");
  }
}

TEST(Journal, AnAppendThatFailsHalfWayLeavesNoTrace) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  {
    Journal journal(path, [](std::string_view) {});
    journal.append("first");
    {
      const test::FileSizeLimit full(100);
      EXPECT_THROW(journal.append(std::string(1000, 'x')), Error);
    }
    EXPECT_EQ(std::filesystem::file_size(path), 16u + 16u + 5u);
    journal.append("second");
  }
  EXPECT_EQ(replay(path), (Records{"first", "second"}));
}

TEST(Journal, AFullDiskTakesThousandsOfSmallRecordsMore) {
  const test::SmallDisk disk(8);
  if (!disk.mounted()) GTEST_SKIP() << "needs root for a disk of its own";
  const auto path = disk / "journal";
  Records expected;
  {
    Journal journal(path, [](std::string_view) {});
    ASSERT_TRUE(journal.reserves());
    disk.fill();
    const std::string submit(100'000, 's');
    const auto fill_up = [&] {
      for (; expected.size() < 100; expected.push_back(submit))
        journal.append(submit, Journal::Room::kLeaveReserve);
    };
    try {
      fill_up();
      FAIL() << "the disk is not full";
    } catch (const ResourceExhausted& error) {
      EXPECT_EQ(error.reason(), "DISK_FULL");
    }
    for (int i = 0; i < 3000; ++i) {
      expected.push_back(std::string(200, 'c') + std::to_string(i));
      journal.append(expected.back());
    }
    EXPECT_THROW(journal.append(std::string(4 << 20, 'x')), ResourceExhausted);
    expected.push_back("still taken");
    journal.append(expected.back());
    EXPECT_THROW(rewrite(journal, {std::string(1 << 20, 'x')}), ResourceExhausted);
    expected.push_back("also after that");
    journal.append(expected.back());
    disk.free();
    expected.push_back("a submit");
    journal.append(expected.back(), Journal::Room::kLeaveReserve);
  }
  EXPECT_EQ(replay(path), expected);
}

TEST(Journal, RewritingReplacesEverything) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  {
    Journal journal(path, [](std::string_view) {});
    for (const auto& record : kRecords) journal.append(record);
    rewrite(journal, {"only"});
    journal.append("next");
  }
  EXPECT_EQ(replay(path), (Records{"only", "next"}));
}

TEST(Journal, WhatIsAppendedDuringARewriteIsBehindIt) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  const Records live{"live", std::string(3 << 20, 'l'), ""};
  Records appended;
  {
    Journal journal(path, [](std::string_view) {});
    for (const auto& record : kRecords) journal.append(record);
    const auto append = [&](const std::string& record) {
      journal.append(record);
      appended.push_back(record);
    };
    Journal::Rewrite next(journal, producer(live));
    for (const auto& record : kRecords) append(record);
    for (int i = 0; i < 5; ++i) append(std::string(700'000, static_cast<char>('a' + i)));
    next.write();
    for (const auto& record : kRecords) append(record);
    journal.switch_to(next);
    EXPECT_EQ(journal.size(), std::filesystem::file_size(path));
    append("next");
  }
  EXPECT_EQ(replay(path), joined(live, appended));
}

TEST(Journal, AKillAtAnyStageOfARewriteLosesNoRecord) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  const Records live{std::string(2 << 20, 'l')};
  Journal journal(path, [](std::string_view) {});
  for (const auto& record : kRecords) journal.append(record);
  Journal::Rewrite next(journal, producer(live));
  journal.append("during");
  EXPECT_EQ(replay_after_kill(folder.path()), joined(kRecords, {"during"}));
  next.write();
  const std::uintmax_t whole = std::filesystem::file_size(folder / "journal.new");
  journal.append("behind");
  EXPECT_EQ(replay_after_kill(folder.path()), joined(kRecords, {"during", "behind"}));
  {
    const test::TempFolder halfway;
    std::filesystem::copy(folder.path(), halfway.path());
    std::filesystem::resize_file(halfway / "journal.new", whole / 2);
    EXPECT_EQ(replay_after_kill(halfway.path()), joined(kRecords, {"during", "behind"}));
  }
  journal.switch_to(next);
  EXPECT_EQ(replay_after_kill(folder.path()), joined(live, {"during", "behind"}));
  journal.append("after");
  EXPECT_EQ(replay_after_kill(folder.path()), joined(live, {"during", "behind", "after"}));
}

TEST(Journal, ARewriteThatFailsOrIsStoppedLeavesTheJournalAsItWas) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  const Records live{std::string(2 << 20, 'l')};
  {
    Journal journal(path, [](std::string_view) {});
    for (const auto& record : kRecords) journal.append(record);
    {
      const test::FileSizeLimit full(1 << 20);
      Journal::Rewrite next(journal, producer(live));
      EXPECT_THROW(next.write(), ResourceExhausted);
      EXPECT_TRUE(std::filesystem::exists(folder / "journal.new"));
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "journal.new"));
    {
      std::stop_source stop;
      stop.request_stop();
      Journal::Rewrite next(journal, producer(live));
      EXPECT_THROW(next.write(stop.get_token()), Cancelled);
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "journal.new"));
    journal.append("after");
  }
  EXPECT_EQ(replay(path), joined(kRecords, {"after"}));
}

TEST(Journal, ASwitchThatFailsLeavesTheJournalAsItWas) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  Journal journal(path, [](std::string_view) {});
  for (const auto& record : kRecords) journal.append(record);
  {
    Journal::Rewrite next(journal, producer({"only"}));
    next.write();
    journal.append(std::string(5000, 'd'));
    const test::FileSizeLimit full(2000);
    EXPECT_THROW(journal.switch_to(next), ResourceExhausted);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "journal.new"));
  journal.append("after");
  EXPECT_EQ(replay_after_kill(folder.path()), joined(kRecords, {std::string(5000, 'd'), "after"}));
}

TEST(Journal, ARewriteCopiesNoDamage) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  Journal journal(path, [](std::string_view) {});
  journal.append("first");
  Journal::Rewrite next(journal, producer({"only"}));
  journal.append("second");
  std::string bytes = test::file_text(path);
  bytes.back() ^= 1;
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << bytes;
  EXPECT_THROW(next.write(), DataLoss);
}

}  // namespace
}  // namespace meshloom::control
