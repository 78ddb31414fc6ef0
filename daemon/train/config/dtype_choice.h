// SPDX-License-Identifier: Apache-2.0
// The dtype that a run computes in, and what `auto` means.
#pragma once

#include <string>
#include <vector>

#include "daemon/nn/models/model_config.h"
#include "daemon/train/config/device_choice.h"
#include "kernels/base/dtype.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// Returns the names that run.plan.dtype may have beside auto.
const std::vector<std::string>& offered_dtypes();
/// Returns the names that run.export.dtype may have.
const std::vector<std::string>& offered_export_dtypes();

/// Returns run.plan.dtype of a resolved config. Throws InvalidArgument for an unknown name,
/// Unimplemented for float16.
DType dtype_of(const v1::ParallelPlan& plan);

/// Returns the dtype of this name, in which weights can be exported. Throws InvalidArgument for
/// another name.
DType export_dtype(const std::string& name);

/// Writes out what `auto`, or nothing, means in run.plan.dtype for this model on rank 0's device of
/// a config whose device is resolved (device_choice.h); throws as dtype_of. Rank 0 calls it.
void resolve_dtype(v1::RunConfig& config, const nn::ModelConfig& model,
                   const WorldDevices& devices);

/// Tells whether the user left the dtype to Meshloom.
bool dtype_is_auto(const v1::ParallelPlan& given);

/// Says what `auto` became and why. Rank 0 calls it.
std::string dtype_note(const v1::RunConfig& resolved, const WorldDevices& devices);

}  // namespace meshloom::train
