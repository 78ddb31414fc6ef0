// SPDX-License-Identifier: Apache-2.0
// The ProcessGroup of several ranks: it checks and signs each call; GroupState and Algorithms do
// the rest.
#pragma once

#include <memory>

#include "daemon/comm/failure/rank_groups.h"
#include "daemon/comm/flight/algorithms.h"
#include "daemon/comm/group_key.h"
#include "daemon/comm/process_group.h"

namespace meshloom::comm {

/// Makes a world group: all ranks of `algorithms`, which are the ranks of the world. `groups`
/// belongs to the rank and is given to every group that is split from this one; `key` is its
/// next_world_key().
std::unique_ptr<ProcessGroup> make_collective_group(std::unique_ptr<Algorithms> algorithms,
                                                    const GroupOptions& options,
                                                    std::shared_ptr<RankGroups> groups,
                                                    GroupKey key);

}  // namespace meshloom::comm
