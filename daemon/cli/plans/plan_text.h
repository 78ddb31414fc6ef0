// SPDX-License-Identifier: Apache-2.0
// Meshes, plans and devices are told in a line.
#pragma once

#include <string>

#include "v1/config.pb.h"

namespace meshloom::cli {

/// Returns "dp=2,tp=2"; dims of one rank are left out, "1 rank" if all are.
std::string mesh_text(const v1::Mesh& mesh);

/// Returns what a resolved plan says: "tensor_parallel, sequence_parallel, fully_shard
/// largest_divisible, activation_checkpoint full, float32, own styles for transformer.h.*.attn".
std::string plan_text(const v1::ParallelPlan& plan);

/// Returns run.device of a resolved config; "cpu" for one of an older daemon, which names none.
std::string device_text(const v1::RunConfig& resolved);

}  // namespace meshloom::cli
