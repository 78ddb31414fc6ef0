// SPDX-License-Identifier: Apache-2.0
// Context-parallel attention beside the same blocks without communication, on forked ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/dtype.h"
#include "planner/attention/rotate.h"

namespace meshloom::bench {

struct ContextAttentionOptions {
  int ranks = 2;
  int threads = 1;  ///< of each rank
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> sequences;
  std::int64_t batch = 1, heads = 12, kv_heads = 12, dims = 64;
  bool is_causal = true;
  planner::Rotate rotate = planner::Rotate::kPull;
  double seconds = 2.0;  ///< for each length
  bool json = false;
};

/// Prints a line for each length. Exit status.
int run_context_attention(const ContextAttentionOptions& options);

}  // namespace meshloom::bench
