// SPDX-License-Identifier: Apache-2.0
// What holds when one rank fails alone, on every kind of rank. Each function is called by all ranks
// of a world.
#pragma once

#include "daemon/comm/mesh/rank_runtime.h"

namespace meshloom::comm::testing {

void check_a_failure_frees_those_who_wait(RankRuntime&);
void check_failures_at_random_places(RankRuntime&, int rounds);
void check_a_failure_frees_other_groups(RankRuntime&);
void check_a_failure_that_all_share_changes_nothing(RankRuntime&);
void check_two_ranks_fail_at_once(RankRuntime&);
void check_ranks_that_are_behind_finish(RankRuntime&);
void check_ranks_that_wait_for_nothing_can_join(RankRuntime&);
void check_long_reports(RankRuntime&);

void check_all_failures(RankRuntime&);

}  // namespace meshloom::comm::testing
