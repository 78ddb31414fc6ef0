// SPDX-License-Identifier: Apache-2.0
// Losses of a run's own data on its model as it is.
#pragma once

#include <vector>

#include "daemon/comm/process_group.h"
#include "daemon/train/data/data_feed.h"
#include "daemon/train/run/model_run.h"
#include "daemon/train/run/run_values.h"

namespace meshloom::train {

/// Returns what Run::forward returns for these batches. Every rank of the world calls it.
std::vector<LossSum> validation_losses(ModelRun& model, const DataFeed& data,
                                       const ValidationBatches& batches, comm::ProcessGroup& world);

}  // namespace meshloom::train
