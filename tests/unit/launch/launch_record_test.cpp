// SPDX-License-Identifier: Apache-2.0
#include "daemon/launch/launch_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "daemon/base/host_identity.h"
#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"

namespace meshloom::launch {
namespace {

LaunchRecord own_record(const test::TempFolder& folder) {
  return {folder.path(), identify(::getpid()), 2, folder / "logs/daemon.log"};
}

TEST(LaunchRecord, IsReadAsItWasWritten) {
  const test::TempFolder folder;
  EXPECT_EQ(read_record(folder.path()), std::nullopt);
  const LaunchRecord record = own_record(folder);
  write_record(record);
  const auto read = read_record(folder.path()).value();
  EXPECT_EQ(read.launcher.pid, ::getpid());
  EXPECT_EQ(read.launcher.start_time, record.launcher.start_time);
  EXPECT_EQ(read.launcher.boot, record.launcher.boot);
  EXPECT_EQ(read.launcher.host, base::host_name());
  EXPECT_EQ(read.ranks, 2);
  EXPECT_EQ(read.log, record.log);
  EXPECT_TRUE(runs(read.launcher));
}

TEST(LaunchRecord, ANumberAloneIsNoProcess) {
  ProcessIdentity process = identify(::getpid());
  process.start_time += 1;
  EXPECT_FALSE(runs(process)) << "another process had the number";
  process = identify(::getpid());
  process.boot = "before";
  EXPECT_FALSE(runs(process));
  process = identify(::getpid());
  process.host += "x";
  EXPECT_FALSE(runs(process));
  EXPECT_THROW(identify(0), IoError);
}

TEST(LaunchRecord, ADamagedOneIsNamed) {
  const test::TempFolder folder;
  for (const char* text : {"", "{", "[]", "{\"pid\": 1}", "{\"pid\": \"x\"}",
                           R"({"pid":1,"start_time":1,"boot":"","host":"","ranks":1,"log":""})"}) {
    folder.write("launch.json", text);
    try {
      read_record(folder.path());
      ADD_FAILURE() << text;
    } catch (const FailedPrecondition& error) {
      EXPECT_EQ(error.reason(), "LAUNCH_RECORD_DAMAGED");
      EXPECT_THAT(error.what(), ::testing::HasSubstr((folder / "launch.json").string()));
    }
  }
}

TEST(LaunchRecord, OnlyItsOwnIsRemoved) {
  const test::TempFolder folder;
  const LaunchRecord first = own_record(folder);
  LaunchRecord later = first;
  later.launcher.start_time += 1;
  write_record(later);
  EXPECT_FALSE(remove_record(first));
  EXPECT_TRUE(read_record(folder.path()).has_value());
  EXPECT_TRUE(remove_record(later));
  EXPECT_FALSE(read_record(folder.path()).has_value());
  EXPECT_FALSE(remove_record(later));
}

TEST(LaunchRecord, AFolderHasOneSpelling) {
  EXPECT_EQ(normal_folder("/a/b/"), "/a/b");
  EXPECT_EQ(normal_folder("/a/./c/../b"), "/a/b");
  EXPECT_EQ(normal_folder("/"), "/");
  EXPECT_EQ(normal_folder("x"), std::filesystem::current_path() / "x");
}

TEST(LaunchRecord, AnAddressIsOneShortLine) {
  const test::TempFolder folder;
  EXPECT_EQ(written_address(folder.path()), "");
  folder.write("address", "127.0.0.1:7420\n");
  EXPECT_EQ(written_address(folder.path()), "127.0.0.1:7420");
}

TEST(LaunchRecord, OnlyFoldersOfThisAccountAreItsOwn) {
  const test::TempFolder folder;
  EXPECT_TRUE(is_own(folder.path()));
  EXPECT_FALSE(belongs_to_another(folder.path()));
  EXPECT_FALSE(is_own(folder / "missing"));
  EXPECT_FALSE(belongs_to_another(folder / "missing"));
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  ASSERT_EQ(::chown(folder.path().c_str(), 65534, 65534), 0);
  EXPECT_FALSE(is_own(folder.path()));
  EXPECT_TRUE(belongs_to_another(folder.path()));
}

}  // namespace
}  // namespace meshloom::launch
