// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/micro_batch.h"

#include <algorithm>

#include "kernels/base/integer_math.h"

namespace meshloom::train {

std::int64_t rank_share(const v1::RunConfig& resolved) {
  const v1::Mesh& mesh = resolved.mesh();
  const std::int64_t ranks =
      std::max<std::int64_t>(1, mesh.dp()) * std::max<std::int64_t>(1, mesh.fsdp());
  return divide_up(resolved.training().global_batch_size(), ranks);
}

void keep_micro_batch(const v1::RunConfig& before, v1::RunConfig* config) {
  const std::int64_t chosen = before.training().micro_batch_size();
  if (chosen > 0 && chosen < rank_share(before) && chosen < rank_share(*config))
    config->mutable_training()->set_micro_batch_size(chosen);
}

}  // namespace meshloom::train
