// SPDX-License-Identifier: Apache-2.0
// Random collectives with random sleeps, for any kind of rank.
#pragma once

#include "daemon/comm/mesh/rank_runtime.h"

namespace meshloom::comm::testing {

/// Every rank calls it. Kinds, sizes, dtypes, groups and how many are in flight come from a seed
/// that all share, sleeps from one of each rank. All results are exact. MESHLOOM_TEST_DRAWS says
/// how many (1000 by default; a soak: 10000), MESHLOOM_TEST_SEED from which seed on.
void check_soak(RankRuntime&);

}  // namespace meshloom::comm::testing
