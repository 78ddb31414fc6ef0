// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of a test: each with its own bootstrap and, where asked for, a world group.
#pragma once

#include <functional>

#include "daemon/comm/mesh/thread_bootstrap.h"

namespace meshloom::testing {

/// Runs body(world) on `world_size` threads; what a rank throws is thrown again when all have
/// ended.
inline void run_ranks(int world_size, const std::function<void(comm::ProcessGroup&)>& body) {
  comm::run_thread_ranks(world_size, [&](comm::RankRuntime& runtime) {
    const auto world = runtime.make_world_group();
    body(*world);
    // Nobody ends while a peer may still need it to move its collectives.
    runtime.bootstrap().barrier();
  });
}

}  // namespace meshloom::testing
