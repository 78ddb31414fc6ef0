// SPDX-License-Identifier: Apache-2.0
// What a group makes of its calls on every kind of rank: parts, counters, records, refusals,
// deadlines. Each function is called by all ranks of a world.
#pragma once

#include "daemon/comm/mesh/rank_runtime.h"

namespace meshloom::comm::testing {

void check_split(RankRuntime&);
void check_counters_and_record(RankRuntime&);
void check_wrong_arguments(RankRuntime&);

/// These leave a group behind that is of no more use; run them last.
void check_missing_peer(RankRuntime&);
void check_abort_flag(RankRuntime&);
void check_dropped_work(RankRuntime&);

}  // namespace meshloom::comm::testing
