// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/world_hosts.h"

#include <gtest/gtest.h>

#include <mutex>

#include "daemon/comm/mesh/thread_bootstrap.h"
#include "kernels/backend_table.h"

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
  comm::run_thread_ranks(3, [&](comm::RankRuntime& runtime) {
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

}  // namespace
}  // namespace meshloom::control
