// SPDX-License-Identifier: Apache-2.0
// Checks of symmetric memory that threads and forked processes run alike. All ranks call them.
#pragma once

#include "daemon/comm/mesh/rank_runtime.h"
#include "daemon/comm/symm_mem/host_symmetric_group.h"

namespace meshloom::comm::testing {

/// SymmetricMemory::enable of a host's memory.
inline HostSymmetricGroup& enable_on_host(HostSymmetricMemory& memory, ProcessGroup& group) {
  return static_cast<HostSymmetricGroup&>(memory.enable(group));
}

/// Peer views, get and put of pieces of different sizes, at an offset in their segments.
void check_peer_views(RankRuntime&, const SymmetricOptions&);
void check_buffer_bounds(RankRuntime&, const SymmetricOptions&);
/// Memory of a host has none, says why, and refuses.
void check_multicast(RankRuntime&, const SymmetricOptions&);
/// Memory that is not symmetric on one rank gives null on all.
void check_plain_memory(RankRuntime&, const SymmetricOptions&);
/// Data goes with its signal, between all pairs, over and over.
void check_signals_of_all_pairs(RankRuntime&, const SymmetricOptions&);
void check_barriers(RankRuntime&, const SymmetricOptions&);
/// A put that nobody takes, a wait for nothing, a barrier without a rank; and all of it goes on.
void check_deadlines(RankRuntime&, const SymmetricOptions&);
void check_wrong_ranks_and_channels(RankRuntime&, const SymmetricOptions&);
/// World, halves and overlapping pairs with the same channels at once.
void check_groups_at_once(RankRuntime&, const SymmetricOptions&);
void check_enable_and_workspace(RankRuntime&, const SymmetricOptions&);
/// Segments that are made later are mapped when they are first needed; also more of them than a
/// socket queues.
void check_further_segments(RankRuntime&, const SymmetricOptions&);
void check_abort_flag_ends_waits(RankRuntime&, const SymmetricOptions&);
/// A failed rank ends waits, and after the recovery all signals begin anew.
void check_signals_after_recovery(RankRuntime&, const SymmetricOptions&);

struct SymmetricCheck {
  const char* name;
  void (*run)(RankRuntime&, const SymmetricOptions&);
};

inline constexpr SymmetricCheck kSymmetricChecks[] = {
    {"peer_views", check_peer_views},
    {"buffer_bounds", check_buffer_bounds},
    {"multicast", check_multicast},
    {"plain_memory", check_plain_memory},
    {"signals_of_all_pairs", check_signals_of_all_pairs},
    {"barriers", check_barriers},
    {"deadlines", check_deadlines},
    {"wrong_ranks_and_channels", check_wrong_ranks_and_channels},
    {"groups_at_once", check_groups_at_once},
    {"enable_and_workspace", check_enable_and_workspace},
    {"further_segments", check_further_segments},
    {"abort_flag", check_abort_flag_ends_waits},
    {"after_recovery", check_signals_after_recovery},
};

}  // namespace meshloom::comm::testing
