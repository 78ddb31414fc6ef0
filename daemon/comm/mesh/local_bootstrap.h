// SPDX-License-Identifier: Apache-2.0
// Ranks as forked processes of one host, without MPI: what `--local-ranks N` starts.
#pragma once

#include <chrono>
#include <functional>

#include "daemon/comm/mesh/group_environment.h"
#include "daemon/comm/mesh/rank_runtime.h"

namespace meshloom::comm {

/// Forks `world_size` children that call body(rank) and exit with its result; the parent only waits
/// and returns the first non-zero result (128 + signal for a killed child), else 0. When a child
/// fails the others are killed after a grace of one second. Children die with the parent. Call it
/// before any thread is started and before MPI, gRPC or OpenMP are used. Bootstrap runs over Unix
/// socket pairs, the process group over memory that is mapped before the fork.
int run_local_ranks(int world_size, const std::function<int(RankRuntime&)>& body,
                    std::chrono::milliseconds timeout = std::chrono::seconds(100),
                    const SymmetricOptions& symmetric = symmetric_from_environment(),
                    const HierarchyOptions& hierarchy = hierarchy_from_environment());

}  // namespace meshloom::comm
