// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/loss/batch_parts.h"

namespace meshloom::train {

SamplePlace sample_place(const planner::MeshLayout& mesh, int rank) {
  const std::vector<int> at = mesh.coordinates(rank);
  const auto coordinate = [&](const char* name) {
    const auto dim = mesh.find_dim(name);
    return dim ? at[static_cast<std::size_t>(*dim)] : 0;
  };
  return {std::int64_t{coordinate("dp")} * mesh.size_of("fsdp") + coordinate("fsdp"),
          coordinate("cp") == 0 && coordinate("tp") == 0};
}

std::vector<std::int64_t> samples_of(const BatchPlan& plan, std::int64_t place) {
  std::vector<std::int64_t> samples;
  for (std::int64_t k = 0; k < plan.micro_batches(); ++k) {
    const planner::ShardRange range = plan.of(k, place);
    for (std::int64_t i = range.begin; i < range.end; ++i) samples.push_back(i);
  }
  return samples;
}

v1::LossBatch rank_part(const v1::LossBatch& batch, const planner::MeshLayout& mesh,
                        std::int64_t micro_batch_size, int rank) {
  v1::LossBatch part;
  part.set_loss(batch.loss());
  *part.mutable_loss_config() = batch.loss_config();
  part.set_reduction(batch.reduction());
  part.set_tokens(batch.tokens());
  if (batch.has_micro_batch_size()) part.set_micro_batch_size(batch.micro_batch_size());
  if (batch.has_reference()) *part.mutable_reference() = batch.reference();
  const BatchPlan plan{batch.data_size(), micro_batch_size_of(batch, micro_batch_size),
                       sample_ranks(mesh)};
  for (const std::int64_t i : samples_of(plan, sample_place(mesh, rank).data))
    *part.add_data() = batch.data(static_cast<int>(i));
  return part;
}

}  // namespace meshloom::train
