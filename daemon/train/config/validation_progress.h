// SPDX-License-Identifier: Apache-2.0
// What a job's validations decide: when early stopping ends it, and which checkpoints are its best.
// It is in every checkpoint of a job that asks for either (v1::ValidationProgress).
#pragma once

#include <string>

#include "v1/config.pb.h"
#include "v1/job.pb.h"

namespace meshloom::train {

/// Returns the loss on run.validation's `set`; empty: on the validation data of run.data. NaN if it
/// was not evaluated.
double validation_loss(const v1::ValidationMetrics& metrics, const std::string& set);

/// Counts a validation for early stopping, if the config has it: better is a loss that is lower
/// than the best by more than min_delta, and NaN never is. One of a step that is counted already
/// changes nothing.
void count_validation(const v1::RunConfig& config, const v1::ValidationMetrics& metrics,
                      v1::ValidationProgress* progress);
/// Returns why early stopping ends the job now; empty: it does not.
std::string early_stop_reason(const v1::RunConfig& config, const v1::ValidationProgress& progress);

/// Adds the checkpoint of a step that was validated to those that checkpoint.keep_best keeps.
/// Returns false, and changes nothing, if it is none of them. Of equal losses the earlier is kept.
bool add_best(const v1::RunConfig& config, const v1::ValidationMetrics& metrics,
              v1::ValidationProgress* progress);

/// Tells whether early stopping of two configs goes by the same losses.
bool counts_alike(const v1::RunConfig& a, const v1::RunConfig& b);

/// The validations behind those of `progress`, which are of `before`, go by `after`, of the same
/// job: early stopping counts anew unless they count alike, and of the best as many stay as are
/// kept by the same losses. Returns whether a count that had begun was dropped.
bool follow_edit(const v1::RunConfig& before, const v1::RunConfig& after,
                 v1::ValidationProgress* progress);

}  // namespace meshloom::train
