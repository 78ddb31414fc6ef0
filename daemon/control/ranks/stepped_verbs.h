// SPDX-License-Identifier: Apache-2.0
// The commands that only a run which a client drives has, as calls of it.
#pragma once

#include "daemon/train/stepped_run.h"
#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// Carries the command out and fills in what it returns. Throws what the run throws,
/// and InternalError for a command of another kind.
void run_stepped_verb(train::SteppedRun& run, const v1::RankCommand& command,
                      v1::RankResult* result);

}  // namespace meshloom::control
