// SPDX-License-Identifier: Apache-2.0
// Generating on a mesh: SamplingParams of the wire as the model's options, ranks kept in step.
#pragma once

#include <memory>
#include <vector>

#include "daemon/nn/generate.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/run/model_state.h"
#include "daemon/train/run/run.h"

namespace meshloom::train {

/// Fills in the defaults that config.proto names.
std::vector<nn::GenerateSequence> make_generate_sequences(
    const std::vector<SampleStart>& sequences);

/// Draws one pass, its tokens added to `tokens`.
void draw_pass(nn::Generation& generation, std::vector<SampledToken>& tokens);

/// Every rank of the world calls it, and advance() of what it returns. The ranks that hold the
/// first replica of the model (fsdp x cp x tp of rank 0) draw the same tokens together, the others
/// wait. Blocks that fully_shard shards are gathered as they are used, once per pass; those that
/// fit into half of the memory that the allocators of all ranks hold free stay until advance()
/// ends. What fails on a rank is thrown by all, after the pass that the others were at.
std::unique_ptr<Sample> begin_sample_on_mesh(ModelState& state,
                                             const std::vector<SampleStart>& sequences);

}  // namespace meshloom::train
