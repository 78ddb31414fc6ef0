// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/workload.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/base/integer_math.h"
#include "planner/shard.h"

namespace meshloom::planner {

std::int64_t samples_per_rank(const MeshSizes& mesh, const Workload& work) {
  return shard_range(work.global_batch, std::int64_t{mesh.dp} * mesh.fsdp, 0).size();
}

std::int64_t micro_batches(const MeshSizes& mesh, const Workload& work) {
  const std::int64_t samples = samples_per_rank(mesh, work);
  return (samples + work.micro_batch - 1) / work.micro_batch;
}

std::int64_t tokens_per_rank(const MeshSizes& mesh, const Workload& work) {
  return divide_up<std::int64_t>(work.sequence, mesh.cp);
}

std::optional<std::string> why_invalid(const ModelShape& model, const MeshSizes& mesh,
                                       const ParallelPlan& plan, const Workload& work) {
  if (mesh.dp < 1 || mesh.fsdp < 1 || mesh.cp < 1 || mesh.tp < 1)
    return fmt::format("mesh sizes must be at least 1, got dp={},fsdp={},cp={},tp={}", mesh.dp,
                       mesh.fsdp, mesh.cp, mesh.tp);
  if (mesh.cp > work.sequence)
    return fmt::format("cp={} is more than a sequence of {} tokens", mesh.cp, work.sequence);
  if (mesh.tp > 1 && !plan.tensor_parallel)
    return fmt::format("tp={} needs tensor_parallel", mesh.tp);
  if (mesh.fsdp > 1 && !plan.fully_shard)
    return fmt::format("fsdp={} needs fully_shard", mesh.fsdp);
  if (plan.sequence_parallel && !plan.tensor_parallel)
    return "sequence_parallel needs tensor_parallel, a mesh with tp larger than 1";
  if (plan.fusion != FusionPlan{} && !plan.tensor_parallel)
    return "fusion needs tensor_parallel, a mesh with tp larger than 1";
  if (plan.sequence_parallel && !plan.styles.empty())
    return "sequence_parallel is a choice between default styles, but styles are given";
  if (plan.dtype != DType::kFloat32 && plan.dtype != DType::kBFloat16)
    return fmt::format("dtype must be float32 or bfloat16, got {}", dtype_name(plan.dtype));
  if (work.global_batch < 1 || work.micro_batch < 1 || work.sequence < 1)
    return fmt::format("global batch {}, micro batch {} and sequence {} must be at least 1",
                       work.global_batch, work.micro_batch, work.sequence);
  if (work.sequence > std::max(model.positions, model.longest_sequence))
    return fmt::format("a sequence of {} tokens is longer than the model's context of {}",
                       work.sequence, model.positions);
  if (work.micro_batch > samples_per_rank(mesh, work))
    return fmt::format("a micro batch of {} samples is more than a rank's share of {}, {}",
                       work.micro_batch, work.global_batch, samples_per_rank(mesh, work));
  return std::nullopt;
}

}  // namespace meshloom::planner
