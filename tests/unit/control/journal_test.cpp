// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/journal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <fstream>
#include <random>
#include <sstream>
#include <vector>

#include "kernels/base/error.h"
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

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void set_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
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
  const std::string whole = bytes_of(path);
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
  const std::string whole = bytes_of(path);
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
  const std::string whole = bytes_of(path);
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
    EXPECT_EQ(bytes_of(path), damaged);
  }
}

TEST(Journal, ANewerVersionIsRefused) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  write_records(path, kRecords);
  std::string bytes = bytes_of(path);
  bytes[8] = 2;
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

TEST(Journal, AnAppendThatFailsHalfWayLeavesNoTrace) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  {
    Journal journal(path, [](std::string_view) {});
    journal.append("first");
    const rlimit full{100, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &full);
    EXPECT_THROW(journal.append(std::string(1000, 'x')), Error);
    ::setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(std::filesystem::file_size(path), 16u + 16u + 5u);
    journal.append("second");
  }
  ::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(replay(path), (Records{"first", "second"}));
}

TEST(Journal, RewritingReplacesEverything) {
  const test::TempFolder folder;
  const auto path = folder / "journal";
  {
    Journal journal(path, [](std::string_view) {});
    for (const auto& record : kRecords) journal.append(record);
    journal.rewrite([](const Journal::Visit& append) { append("only"); });
    journal.append("next");
  }
  EXPECT_EQ(replay(path), (Records{"only", "next"}));
}

}  // namespace
}  // namespace meshloom::control
