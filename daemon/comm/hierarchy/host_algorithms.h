// SPDX-License-Identifier: Apache-2.0
// Algorithms for whatever hosts the ranks of a group are on.
#pragma once

#include <memory>

#include "daemon/comm/flight/algorithms.h"
#include "daemon/comm/group_key.h"
#include "daemon/comm/hierarchy/hierarchy_table.h"
#include "daemon/comm/symm_collectives/symmetric_algorithms.h"
#include "daemon/comm/transport/transport.h"

namespace meshloom::comm {

/// Every member calls it, right after all have met. Members of one host use symmetric memory; those
/// of several hosts use it inside each host and messages between them; where no two members share a
/// host, or the hierarchy is not wanted, all goes over messages. `transport` is among all members,
/// `options` names the host of each.
/// Throws as make_symmetric_algorithms does.
std::unique_ptr<Algorithms> make_host_algorithms(std::unique_ptr<Transport> transport,
                                                 const SymmetricSetup& setup,
                                                 const HierarchyOptions& options, GroupKey key);

}  // namespace meshloom::comm
