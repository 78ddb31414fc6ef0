// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "daemon/comm/symm_mem/memory_room.h"
#include "daemon/comm/symm_mem/segment_directory.h"
#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"

namespace meshloom::comm {
namespace {

using ::testing::HasSubstr;

TEST(Segment, IsZeroAlignedAndOfFixedSize) {
  const auto segment = Segment::create((3 << 20) + 1);
  EXPECT_EQ(segment->bytes(), (3u << 20) + static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(segment->data()) % (2 << 20), 0u);
  for (std::size_t i = 0; i < segment->bytes(); i += 1000)
    ASSERT_EQ(segment->data()[i], std::byte{0});
  EXPECT_NE(ftruncate(segment->fd(), 0), 0) << "a peer must not cut it off";
  EXPECT_NE(ftruncate(segment->fd(), 1 << 30), 0);
  EXPECT_EQ(fcntl(segment->fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(Segment, APeerSeesTheSameMemory) {
  const auto segment = Segment::create(100);
  const auto peer = Segment::map(base::UniqueFd(dup(segment->fd())), segment->name());
  EXPECT_NE(peer->data(), segment->data());
  segment->data()[99] = std::byte{7};
  EXPECT_EQ(peer->data()[99], std::byte{7});
}

TEST(Segment, AnotherMemoryIsNotTaken) {
  const auto one = Segment::create(100), other = Segment::create(100),
             large = Segment::create(9000);
  EXPECT_THROW(Segment::map(base::UniqueFd(dup(other->fd())), one->name()), IoError)
      << "another nonce";
  EXPECT_THROW(Segment::map(base::UniqueFd(dup(large->fd())), one->name()), IoError)
      << "another size";
}

// Processes of two PID namespaces can have one pid, start time and number of a descriptor.
TEST(SegmentDirectory, AProcessOfAnotherPidNamespaceIsNotThisOne) {
  const auto segment = Segment::create(100);
  SegmentDirectory directory(SharingMode::kAuto);
  Sharing way = Sharing::kNone;
  std::string why;
  EXPECT_EQ(directory.open(segment->name(), way, why), segment);
  EXPECT_EQ(way, Sharing::kSameProcess);
  SegmentName far = segment->name();
  ++far.pid_namespace;
  const auto opened = directory.open(far, way, why);
  EXPECT_NE(opened, segment) << "its address means nothing here";
  EXPECT_NE(way, Sharing::kSameProcess);
}

TEST(Segment, TooLargeIsRefusedBeforeItIsTaken) {
  try {
    Segment::create(std::size_t{1} << 45);
    FAIL() << "32 TiB were given";
  } catch (const ResourceExhausted& error) {
    EXPECT_THAT(error.what(), HasSubstr("35184372088832"));
    EXPECT_GT(std::stoll(error.metadata().at("left")), 0);
  }
  EXPECT_THROW(Segment::create(SIZE_MAX), ResourceExhausted);
}

/// Files of /proc and of cgroups as the kernel writes them.
class Folders : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder.path() / path).parent_path());
    std::ofstream(folder.path() / path) << text;
  }
  MemoryRoom room() { return memory_room(folder.path() / "proc", folder.path() / "cgroup"); }
  test::TempFolder folder;
};

TEST_F(Folders, NothingTells) { EXPECT_EQ(room().bytes, INT64_MAX); }

TEST_F(Folders, TheNarrowestOfAllLimits) {
  write("proc/meminfo", "MemTotal: 900 kB\nMemAvailable:   500 kB\n");
  EXPECT_EQ(room().bytes, 500 * 1024);
  EXPECT_EQ(room().source, "MemAvailable");
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/b/memory.max", "max\n");
  write("cgroup/a/b/memory.current", "1000\n");
  EXPECT_EQ(room().bytes, 500 * 1024);
  write("cgroup/a/memory.max", "300000\n");
  write("cgroup/a/memory.current", "100000\n");
  EXPECT_EQ(room().bytes, 200'000);
  EXPECT_THAT(room().source, HasSubstr("cgroup/a"));
  // Cache of files is given up for shared memory, other shared memory is not.
  write("cgroup/a/memory.stat", "anon 5\nshmem 9\ninactive_file 20000\nactive_file 10000\n");
  EXPECT_EQ(room().bytes, 230'000);
  write("cgroup/a/memory.current", "400000\n");
  EXPECT_EQ(room().bytes, 0);
}

TEST_F(Folders, VersionOne) {
  write("proc/self/cgroup", "5:cpu:/x\n4:memory:/job\n");
  write("cgroup/memory/job/memory.limit_in_bytes", "5000\n");
  write("cgroup/memory/job/memory.usage_in_bytes", "3000\n");
  write("cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 500\n");
  EXPECT_EQ(room().bytes, 2500);
}

/// Bytes of the mapping at `data` that lie in huge pages, as the kernel tells; -1: it does not.
std::int64_t huge_bytes(const std::byte* data) {
  std::ifstream maps("/proc/self/smaps");
  const std::string begin = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(data));
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    inside = inside || line.rfind(begin, 0) == 0;
    std::int64_t kib = 0;
    if (inside && std::sscanf(line.c_str(), "ShmemPmdMapped: %" SCNd64, &kib) == 1)
      return kib * 1024;
  }
  return -1;
}

TEST(Segment, LargeOnesLieInHugePages) {
  constexpr std::size_t kBytes = std::size_t{5} << 20;
  const auto segment = Segment::create(kBytes);
  const auto peer = Segment::map(base::UniqueFd(dup(segment->fd())), segment->name());
  const std::int64_t made = huge_bytes(segment->data());
  // Only a kernel that refuses the test as well is an excuse.
  constexpr int kCollapse = 25;  // MADV_COLLAPSE
  if (made <= 0 && (madvise(segment->data(), std::size_t{4} << 20, kCollapse) != 0 ||
                    huge_bytes(segment->data()) <= 0))
    GTEST_SKIP() << "this kernel makes no huge pages of shared memory on request (MADV_COLLAPSE)";
  EXPECT_EQ(made, std::int64_t{4} << 20);
  EXPECT_EQ(huge_bytes(peer->data()), std::int64_t{4} << 20);
}

}  // namespace
}  // namespace meshloom::comm
