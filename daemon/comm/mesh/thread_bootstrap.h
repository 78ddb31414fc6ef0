// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process, for tests.
#pragma once

#include <chrono>
#include <functional>

#include "daemon/comm/hierarchy/hierarchy_table.h"
#include "daemon/comm/mesh/rank_runtime.h"
#include "daemon/comm/symm_mem/host_symmetric_memory.h"

namespace meshloom::comm {

/// Runs body(rank) on `world_size` threads and waits for all. The first exception by rank order is
/// thrown again, after every thread has ended: a rank that fails ends the waits of the others, in
/// the bootstrap and in groups (PeerFailed, which counts last).
void run_thread_ranks(int world_size, const std::function<void(RankRuntime&)>& body,
                      std::chrono::milliseconds timeout = std::chrono::seconds(100),
                      const SymmetricOptions& symmetric = {},
                      const HierarchyOptions& hierarchy = {});

}  // namespace meshloom::comm
