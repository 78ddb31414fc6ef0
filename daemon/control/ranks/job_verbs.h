// SPDX-License-Identifier: Apache-2.0
// The commands that only a job's run has, as calls of it.
#pragma once

#include "daemon/train/run.h"
#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// Whether it is a command for a job's run, which run_job_verb carries out.
bool is_job_verb(const v1::RankCommand& command);
/// One that changes what is trained: where it fails the run cannot go on.
bool changes_training(const v1::RankCommand& command);

/// Carries the command out and fills in what it returns. Throws what the run throws, and
/// InternalError for a command of another kind.
void run_job_verb(train::Run& run, const v1::RankCommand& command, v1::RankResult* result);

}  // namespace meshloom::control
