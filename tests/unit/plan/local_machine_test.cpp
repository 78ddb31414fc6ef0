// SPDX-License-Identifier: Apache-2.0
#include "daemon/plan/local_machine.h"

#include <gtest/gtest.h>

#include "daemon/plan/clusters.h"
#include "tests/support/temp_folder.h"

namespace meshloom::plan {
namespace {

v1::Cluster measured() {
  v1::Cluster cluster;
  cluster.set_float32_flops(2e11);
  cluster.set_bfloat16_flops(2e11);
  cluster.set_memory_bytes_per_second(5e10);
  cluster.set_memory_bytes(1);
  return cluster;
}

TEST(LocalMachine, HasTheRatesOfItsCoresAndCpu) {
  const auto fitted = [](const LocalHost& host) {
    v1::Cluster cluster = measured();
    fit_to_host(host, &cluster);
    return cluster;
  };
  const v1::Cluster eight = fitted({8, std::int64_t{16} << 30, ": fpu avx2 avx512f"});
  EXPECT_DOUBLE_EQ(eight.float32_flops(), 8e11);
  EXPECT_DOUBLE_EQ(eight.bfloat16_flops(), 8e11) << "no faster without bfloat16 of its own";
  EXPECT_DOUBLE_EQ(eight.memory_bytes_per_second(), 2e11);
  EXPECT_EQ(eight.memory_bytes(), std::int64_t{16} << 30);
  EXPECT_DOUBLE_EQ(fitted({64, 0, "avx512f"}).memory_bytes_per_second(), 2e11)
      << "a host's memory has its limit";
  EXPECT_EQ(fitted({2, 0, ""}).memory_bytes(), 1) << "of which nothing is known";
  EXPECT_LT(fitted({2, 0, "avx2"}).float32_flops(), 2e11);
  EXPECT_GT(fitted({2, 0, "asimd"}).float32_flops(), fitted({2, 0, ""}).float32_flops());
  EXPECT_GT(fitted({2, 0, "avx512f avx512_bf16"}).bfloat16_flops(), 3e11);
  EXPECT_GT(fitted({2, 0, "avx512f amx_bf16"}).bfloat16_flops(), 6e11);
}

TEST(LocalMachine, IsReadFromThisHost) {
  const test::TempFolder folder;
  folder.write("proc/meminfo", "MemTotal:       2048 kB\n");
  folder.write("proc/cpuinfo", "processor: 0\nflags\t\t: fpu avx2\nflags\t\t: other\n");
  const LocalHost host = read_local_host(folder / "proc", folder / "cgroup");
  EXPECT_EQ(host.memory_bytes, 2048 * 1024);
  EXPECT_NE(host.flags.find("avx2"), std::string::npos);
  EXPECT_GE(host.cores, 1);
  folder.write("cgroup/cpu.max", "100000 100000\n");
  EXPECT_EQ(read_local_host(folder / "proc", folder / "cgroup").cores, 1) << "as the quota has it";
  folder.write("cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(read_local_host(folder / "proc", folder / "cgroup").cores, host.cores);
  folder.write("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd bf16\nCPU part\t: 0xd40\n");
  EXPECT_NE(read_local_host(folder / "proc", folder / "cgroup").flags.find("asimd"),
            std::string::npos)
      << "of ARM";
  const LocalHost here = read_local_host();
  EXPECT_EQ(named_cluster(kLocalCluster).memory_bytes(), here.memory_bytes);
  EXPECT_EQ(named_cluster(kLocalCluster).name(), kLocalCluster);
}

}  // namespace
}  // namespace meshloom::plan
