// SPDX-License-Identifier: Apache-2.0
// What every collective must do: one body of checks, run on ranks that are threads, forked
// processes and MPI processes.
#pragma once

#include <span>
#include <vector>

#include "daemon/comm/mesh/rank_runtime.h"

namespace meshloom::comm::testing {

/// Each is called by every rank; failures are gtest expectations on the rank that sees them.
void check_all_reduce_dtypes_and_ops(RankRuntime&);
void check_averages(RankRuntime&);
void check_all_reduce_sizes(RankRuntime&);
void check_all_reduce_algorithms(RankRuntime&);
void check_all_reduce_is_in_rank_order(RankRuntime&);
void check_reduce_scatter_uneven(RankRuntime&);
void check_all_gather_uneven(RankRuntime&);
void check_all_to_all_uneven(RankRuntime&);
void check_scatter_uneven(RankRuntime&);
void check_gather_uneven(RankRuntime&);
void check_broadcast(RankRuntime&);
void check_send_recv(RankRuntime&);
void check_barrier(RankRuntime&);
void check_many_in_flight(RankRuntime&);
void check_waits_in_any_order(RankRuntime&);
void check_random_delays(RankRuntime&);
void check_topology_is_one_host(RankRuntime&);

/// A check, and what a test calls it.
struct Check {
  const char* name;
  void (*run)(RankRuntime&);
};
/// All of the above and those of group_body.h that hold on any hosts, and then `more`.
std::vector<Check> checks_on_any_hosts(std::span<const Check> more = {});
void check_on_any_hosts(RankRuntime&);
/// These, and those of ranks that share a host.
void check_everything(RankRuntime&);

}  // namespace meshloom::comm::testing
