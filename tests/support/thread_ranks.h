// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of a test: each with its own bootstrap and, where asked for, a world group.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "daemon/comm/mesh/thread_bootstrap.h"
#include "tests/support/test_context.h"

namespace meshloom::testing {

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

/// Runs body(world) on `world_size` threads; what a rank throws is thrown again when all have
/// ended. On a test device each rank has one of its own, which its TestContexts are on.
inline void run_ranks(int world_size, const std::function<void(comm::ProcessGroup&)>& body) {
  comm::run_thread_ranks(world_size, [&](comm::RankRuntime& runtime) {
    const RankDeviceScope scope;
    const auto world = make_test_world(runtime);
    body(*world);
    // Nobody ends while a peer may still need it to move its collectives.
    runtime.bootstrap().barrier();
  });
}

}  // namespace meshloom::testing
