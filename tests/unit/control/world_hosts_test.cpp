// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/world_hosts.h"

#include <gtest/gtest.h>

#include <mutex>

#include "kernels/backend_table.h"
#include "tests/support/thread_ranks.h"

namespace meshloom::control {
namespace {

/// Ranks 0 and 2 on one host and rank 1 on another.
comm::Topology two_hosts() {
  comm::Topology topology;
  topology.hosts = 2;
  topology.ranks = {{0, 0, 2, 1, "a"}, {1, 0, 1, 2, "b"}, {0, 1, 2, 3, "a"}};
  return topology;
}

TEST(WorldHosts, EveryRankKnowsMemoryAndDevicesOfAllHosts) {
  const std::vector<int> indices = kernels::device_indices(DeviceKind::kCuda);
  ASSERT_GE(indices.size(), 2u);
  testing::run_thread_ranks(3, [&](comm::RankRuntime& runtime) {
    const WorldHosts hosts = gather_hosts(runtime.bootstrap(), two_hosts());
    ASSERT_EQ(hosts.memory.size(), 2u);
    ASSERT_EQ(hosts.devices.size(), 2u);
    EXPECT_EQ(hosts.memory[0].name, "a");
    EXPECT_EQ(hosts.memory[0].ranks, 2);
    EXPECT_EQ(hosts.memory[1].limit.bytes, base::memory_limit().bytes);
    EXPECT_EQ(hosts.memory[1].limit.source, base::memory_limit().source);
    for (const train::HostDevices& host : hosts.devices) {
      EXPECT_EQ(host.trouble, "");
      ASSERT_EQ(host.cuda.size(), indices.size());
      for (std::size_t i = 0; i < indices.size(); ++i) {
        const kernels::Backend& backend = kernels::backend_for({DeviceKind::kCuda, indices[i]});
        EXPECT_EQ(host.cuda[i].index, indices[i]);
        EXPECT_EQ(host.cuda[i].compute_class, backend.describe().compute_class);
        EXPECT_EQ(host.cuda[i].memory_bytes, backend.memory().all);
      }
    }
    EXPECT_EQ(hosts.devices[0].host, "a");
    EXPECT_EQ(hosts.devices[0].ranks, 2);
    EXPECT_EQ(hosts.devices[1].host, "b");
    EXPECT_EQ(hosts.devices[1].ranks, 1);
  });
}

/// Gives what the ranks say, whatever the one that asks says itself.
class ToldBootstrap final : public comm::Bootstrap {
 public:
  explicit ToldBootstrap(std::vector<std::string> texts) : texts_(std::move(texts)) {}
  int rank() const override { return 0; }
  int world_size() const override { return static_cast<int>(texts_.size()); }
  std::vector<std::string> exchange(const std::string&) override { return texts_; }
  std::string broadcast(const std::string& value, int) override { return value; }
  void barrier() override {}

 private:
  std::vector<std::string> texts_;
};

/// Of the ranks of two_hosts(), each given the lines of its trouble and devices.
train::WorldDevices devices_told(const std::vector<std::string>& ranks) {
  std::vector<std::string> texts;
  for (const std::string& rank : ranks) texts.push_back("1000 memory\n" + rank);
  ToldBootstrap bootstrap(texts);
  return gather_hosts(bootstrap, two_hosts()).devices;
}

TEST(WorldHosts, ADeviceThatAnotherRankOfTheHostLacksIsLeftOut) {
  const auto hosts =
      devices_told({"\n0 70 sm_90\n1 70 sm_90\n", "\n", "cuda:0: no driver\n1 70 sm_90\n"});
  ASSERT_EQ(hosts[0].cuda.size(), 1u);
  EXPECT_EQ(hosts[0].cuda[0].index, 1);
  EXPECT_EQ(hosts[0].trouble, "cuda:0: no driver");
  EXPECT_TRUE(hosts[1].cuda.empty());
  EXPECT_EQ(hosts[1].trouble, "");
}

TEST(WorldHosts, ADeviceOfTwoClassesForTheRanksOfAHostIsLeftOut) {
  const auto hosts =
      devices_told({"\n0 70 sm_90\n1 70 sm_90\n", "\n0 70 sm_80\n", "\n0 70 sm_80\n1 70 sm_90\n"});
  ASSERT_EQ(hosts[0].cuda.size(), 1u);
  EXPECT_EQ(hosts[0].cuda[0].index, 1);
  EXPECT_EQ(hosts[0].trouble,
            "cuda:0 is of class sm_90 for one rank and of class sm_80 for another");
  EXPECT_EQ(hosts[1].cuda.size(), 1u) << "of its one rank";
}

TEST(WorldHosts, TheLeastMemoryThatIsKnownCounts) {
  const auto hosts =
      devices_told({"\n0 70 x\n1 0 x\n2 60 x\n3 0 x\n", "\n", "\n0 60 x\n1 50 x\n2 0 x\n3 0 x\n"});
  ASSERT_EQ(hosts[0].cuda.size(), 4u);
  std::vector<std::int64_t> bytes;
  for (const train::CudaDevice& device : hosts[0].cuda) bytes.push_back(device.memory_bytes);
  EXPECT_EQ(bytes, (std::vector<std::int64_t>{60, 50, 60, 0}));
}

}  // namespace
}  // namespace meshloom::control
