// SPDX-License-Identifier: Apache-2.0
// The micro batch of a job that gives none: a rank's share of the global batch, or an even part of
// it that was chosen to fit the memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/base/integer_math.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// Returns how many samples of the global batch a rank of dp x fsdp has at most. Of a resolved
/// config.
inline std::int64_t rank_share(const v1::RunConfig& resolved) {
  const v1::Mesh& mesh = resolved.mesh();
  const std::int64_t ranks =
      std::max<std::int64_t>(1, mesh.dp()) * std::max<std::int64_t>(1, mesh.fsdp());
  return divide_up(resolved.training().global_batch_size(), ranks);
}

/// The choice of `before`, if it was less than a rank's share, becomes that of `config` as far as
/// it is less than a rank's share there, too. Both are resolved.
inline void keep_micro_batch(const v1::RunConfig& before, v1::RunConfig* config) {
  const std::int64_t chosen = before.training().micro_batch_size();
  if (chosen > 0 && chosen < rank_share(before) && chosen < rank_share(*config))
    config->mutable_training()->set_micro_batch_size(chosen);
}

}  // namespace meshloom::train
