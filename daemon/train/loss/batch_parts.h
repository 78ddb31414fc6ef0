// SPDX-License-Identifier: Apache-2.0
// Which data of a batch a rank computes: pure values, the same for rank 0, which sends them, and
// for the ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/train/data/batch_plan.h"
#include "daemon/train/loss/loss_batch.h"
#include "planner/mesh_layout.h"
#include "v1/step.pb.h"

namespace meshloom::train {

/// SamplePlace is a rank's place among those that have other samples (dp x fsdp), and whether it
/// speaks for those that share its samples.
struct SamplePlace {
  std::int64_t data = 0;
  bool leads = true;
};
SamplePlace sample_place(const planner::MeshLayout& mesh, int rank);
/// Returns how many ranks have other samples than each other: dp * fsdp.
inline std::int64_t sample_ranks(const planner::MeshLayout& mesh) {
  return std::int64_t{mesh.size_of("dp")} * mesh.size_of("fsdp");
}

/// Returns the indices of a place's samples, in the order of its micro batches.
std::vector<std::int64_t> samples_of(const BatchPlan& plan, std::int64_t place);

/// Returns the batch as a rank of `mesh` gets it: with its own data alone, in the order of its
/// micro batches. `micro_batch_size` is the run's. Ranks of cp and tp that share samples get all of
/// them.
v1::LossBatch rank_part(const v1::LossBatch& batch, const planner::MeshLayout& mesh,
                        std::int64_t micro_batch_size, int rank);

}  // namespace meshloom::train
