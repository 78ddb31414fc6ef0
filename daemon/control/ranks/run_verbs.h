// SPDX-License-Identifier: Apache-2.0
// The commands of a run as calls of it.
#pragma once

#include "daemon/train/run/run.h"
#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// Carries the command out and fills in what it returns. Throws what the run throws, and
/// InternalError for a command that is no verb of a run.
void run_verb(train::Run& run, const v1::RankCommand& command, v1::RankResult* result);

}  // namespace meshloom::control
