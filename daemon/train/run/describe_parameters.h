// SPDX-License-Identifier: Apache-2.0
// How the ranks of a mesh hold parameters, in words.
#pragma once

#include <string>
#include <vector>

#include "planner/dtensor_spec.h"

namespace meshloom::train {

struct DescribedParameter {
  std::string name;
  planner::SpecPtr spec;
  std::string shard_reason;  ///< why fully_shard shards it so ("dim0", "small"); empty without it
};

/// Returns "transformer.h.[0-3].attn.c_attn.weight [64, 192]  fsdp S(0) (dim0), tp S(1) by heads, 3
/// x 16". Only mesh dims that shard are named, those of size 1 are left out; if two shard the same
/// dim, the one that shards first is named ("tp before fsdp"). Blocks that are alike share a line.
std::string describe_parameters(const std::vector<DescribedParameter>& parameters);

}  // namespace meshloom::train
