// SPDX-License-Identifier: Apache-2.0
// The audit log: what its lines say, how much disk it takes, and what a flood leaves of it.
#include "daemon/control/access/audit_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "tests/support/temp_folder.h"

namespace meshloom::control {
namespace {

using ::testing::SizeIs;

class AuditLogTest : public ::testing::Test {
 protected:
  static AuditLog::Call call(const std::string& who, const std::string& object,
                             const std::string& code = "OK") {
    AuditLog::Call call;
    call.who = who;
    call.role = "submitter";
    call.from = "192.0.2.7";
    call.method = "CancelJob";
    call.object = object;
    call.code = code;
    call.bytes = 12;
    call.duration = std::chrono::microseconds(1500);
    call.always = code == "OK";
    return call;
  }
  std::vector<nlohmann::json> lines(const AuditLog::Filter& filter = {}) const {
    std::vector<nlohmann::json> lines;
    log_.read(filter, [&](const std::string& line) {
      lines.push_back(nlohmann::json::parse(line));
      return true;
    });
    return lines;
  }
  std::int64_t bytes() const {
    std::error_code ignored;
    std::int64_t bytes = 0;
    for (const char* name : {"audit.jsonl", "audit.jsonl.1"})
      if (const auto size = std::filesystem::file_size(folder_ / "logs" / name, ignored); !ignored)
        bytes += static_cast<std::int64_t>(size);
    return bytes;
  }

  test::TempFolder folder_;
  AuditLog log_{folder_ / "logs" / "audit.jsonl", AuditLog::kLeastBytes};
};

TEST_F(AuditLogTest, ALineSaysWhoDidWhatToWhat) {
  log_.write(call("alice", "jobs/a"));
  const auto all = lines();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0]["who"], "alice");
  EXPECT_EQ(all[0]["role"], "submitter");
  EXPECT_EQ(all[0]["from"], "192.0.2.7");
  EXPECT_EQ(all[0]["method"], "CancelJob");
  EXPECT_EQ(all[0]["object"], "jobs/a");
  EXPECT_EQ(all[0]["code"], "OK");
  EXPECT_EQ(all[0]["bytes"], 12);
  EXPECT_EQ(all[0]["ms"], 1.5);
  struct ::stat file {};
  ASSERT_EQ(::stat((folder_ / "logs" / "audit.jsonl").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777u, 0600u);
}

TEST_F(AuditLogTest, FiltersByObjectWhoAndTime) {
  log_.write(call("alice", "jobs/a"));
  log_.write(call("bob", "jobs/a"));
  log_.write(call("alice", "jobs/b"));
  EXPECT_THAT(lines({.object = "jobs/a"}), SizeIs(2));
  EXPECT_THAT(lines({.who = "alice"}), SizeIs(2));
  EXPECT_THAT(lines({.object = "jobs/a", .who = "alice"}), SizeIs(1));
  EXPECT_THAT(lines({.since = "2000-01-01T00:00:00Z"}), SizeIs(3));
  EXPECT_THAT(lines({.since = "9000-01-01T00:00:00Z"}), SizeIs(0));
}

TEST_F(AuditLogTest, AFloodOfRefusalsIsThinnedAndChangesAreNot) {
  for (int i = 0; i < 1000; ++i) log_.write(call("mallory", "jobs/a", "NOT_FOUND"));
  EXPECT_THAT(lines(), SizeIs(AuditLog::kMostAlike));
  for (int i = 0; i < 100; ++i) log_.write(call("mallory", "jobs/a"));
  EXPECT_THAT(lines(), SizeIs(AuditLog::kMostAlike + 100));
  // Who is not known cannot hide others' lines, whatever it says that it is called.
  for (int i = 0; i < 1000; ++i) {
    AuditLog::Call nobody = call(std::to_string(i), "jobs/a", "UNAUTHENTICATED");
    nobody.role = "nobody";
    log_.write(nobody);
  }
  EXPECT_THAT(lines(), SizeIs(2 * AuditLog::kMostAlike + 100));
}

TEST_F(AuditLogTest, TakesNoMoreDiskThanItMay) {
  const std::string long_name(200, 'x');
  for (int i = 0; i < 6000; ++i) log_.write(call("alice", "jobs/" + long_name));
  EXPECT_LE(bytes(), AuditLog::kLeastBytes);
  EXPECT_GT(bytes(), AuditLog::kLeastBytes / 3);
  log_.write(call("alice", "jobs/last"));
  EXPECT_EQ(lines().back()["object"], "jobs/last");
}

TEST_F(AuditLogTest, WhatCallersChooseMakesNoLinesOfItsOwn) {
  log_.write(call("a\n{\"who\":\"root\"}", std::string(100'000, 'y') + "\xff\n"));
  ASSERT_THAT(lines(), SizeIs(1));
  EXPECT_LT(bytes(), 2000);
}

}  // namespace
}  // namespace meshloom::control
