// SPDX-License-Identifier: Apache-2.0
// Generating on a mesh: SamplingParams of the wire as the model's options, ranks kept in step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/nn/generate.h"
#include "daemon/train/model_state.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// Fills in the defaults that config.proto names.
nn::GenerateOptions make_generate_options(const v1::SamplingParams& params);

/// Every rank of the world calls it. The ranks that hold the first replica of the model (fsdp x tp
/// of rank 0) draw the same tokens together, the others wait; on_token is asked on rank 0 alone.
/// Blocks that fully_shard cuts are gathered as they are used, once per token; those that fit into
/// half of the memory that the allocators of all ranks hold free stay until the end. What fails on
/// a rank, on_token included, is thrown by all, after the token that the others were at.
void generate_on_mesh(ModelState& state, const std::vector<std::int64_t>& prompt,
                      const nn::GenerateOptions& options,
                      const std::function<bool(std::int64_t)>& on_token);

}  // namespace meshloom::train
