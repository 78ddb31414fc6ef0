// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of a test: each with its own bootstrap and, where asked for, a world group.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "daemon/comm/hierarchy/hierarchy_table.h"
#include "daemon/comm/mesh/rank_runtime.h"
#include "daemon/comm/symm_mem/host_symmetric_memory.h"
#include "tests/support/test_context.h"

namespace meshloom::testing {

/// Runs body(rank) on `world_size` threads and waits for all. The first exception by rank order is
/// thrown again, after every thread has ended: a rank that fails ends the waits of the others, in
/// the bootstrap and in groups (PeerFailed, which counts last).
void run_thread_ranks(int world_size, const std::function<void(comm::RankRuntime&)>& body,
                      std::chrono::milliseconds timeout = std::chrono::seconds(100),
                      const comm::SymmetricOptions& symmetric = {},
                      const comm::HierarchyOptions& hierarchy = {});

/// A world of the rank's own device, on which the TestContexts of its thread are from now on.
inline std::unique_ptr<comm::ProcessGroup> make_test_world(comm::RankRuntime& runtime,
                                                           comm::GroupOptions options = {}) {
  options.device = rank_device = test_group_device(runtime.rank());
  return runtime.make_world_group(options);
}

/// Gives the thread its device back at the end: rank 0 is the test's own thread.
class RankDeviceScope {
 public:
  RankDeviceScope() : before_(std::exchange(rank_device, std::nullopt)) {}
  ~RankDeviceScope() { rank_device = before_; }
  RankDeviceScope(const RankDeviceScope&) = delete;
  RankDeviceScope& operator=(const RankDeviceScope&) = delete;

 private:
  std::optional<comm::GroupDevice> before_;
};

/// The world of this thread as the only rank.
inline std::unique_ptr<comm::ProcessGroup> make_single_world() {
  comm::GroupOptions options;
  if (!rank_device) rank_device = test_group_device(0);
  options.device = rank_device;
  return comm::make_single_process_group(options);
}

/// Runs body(world) on `world_size` threads, each of which has the device that `device_of` gives
/// its rank, or none; what a rank throws is thrown again when all have ended.
inline void run_ranks_on(const std::function<std::optional<comm::GroupDevice>(int rank)>& device_of,
                         int world_size, const std::function<void(comm::ProcessGroup&)>& body) {
  run_thread_ranks(world_size, [&](comm::RankRuntime& runtime) {
    const RankDeviceScope scope;
    comm::GroupOptions options;
    options.device = rank_device = device_of(runtime.rank());
    const auto world = runtime.make_world_group(options);
    body(*world);
    // Nobody ends while a peer may still need it to move its collectives.
    runtime.bootstrap().barrier();
  });
}

/// Runs ranks on the devices of the test program, which TestContexts are on.
inline void run_ranks(int world_size, const std::function<void(comm::ProcessGroup&)>& body) {
  run_ranks_on(test_group_device, world_size, body);
}

}  // namespace meshloom::testing
