// SPDX-License-Identifier: Apache-2.0
// Verbs that end alike on all ranks, even if one rank fails alone inside them.
#pragma once

#include <functional>

#include "daemon/comm/process_group.h"

namespace meshloom::train {

/// Every rank of `world` runs the same verb. What a verb throws that the ranks have not agreed on
/// ends it on all of them: those who wait are woken, all recover (see comm/failure.h), and all
/// throw the error of the lowest rank that has one of its own. Ranks that are behind finish earlier
/// verbs first. If every rank had one in this verb and none had begun a collective that others
/// had not, the error is thrown as it is and all go on with the next verb. Else the text names the
/// rank and metadata has "failed_rank": what the verb changed is then undefined, and groups that
/// came from split() have ended unless all ranks were in step. Errors of collectives themselves
/// (kComm, kDeadlineExceeded, kAborted, comm::GroupBroken) pass as they are.
void run_in_step(comm::ProcessGroup& world, const std::function<void()>& verb);

/// Lets a rank take part that is in no verb while another one recovers. Throws as run_in_step does.
[[noreturn]] void join_recovery(comm::ProcessGroup& world);

}  // namespace meshloom::train
