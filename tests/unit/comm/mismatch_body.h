// SPDX-License-Identifier: Apache-2.0
// What holds when ranks are in different collectives, on every kind of rank. Called by all ranks of
// a world.
#pragma once

#include "daemon/comm/mesh/rank_runtime.h"

namespace meshloom::comm::testing {

/// One rank after the other does something else than all others: every pair of collectives.
void check_collectives_that_differ(RankRuntime&);
/// Large ones, several in flight, whose buffers go away at once.
void check_many_that_differ(RankRuntime&);

}  // namespace meshloom::comm::testing
