// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/local_model.h"

#include "planner/shard.h"

namespace meshloom::planner {
namespace {

UnitSize size_of(const std::vector<ParameterShape>& list, const MeshSizes& mesh) {
  UnitSize sum;
  for (const ParameterShape& p : list) {
    Shape shape = tensor_parallel_shape(p, mesh.tp, 0);
    const std::int64_t whole = numel(shape);
    if (shape[0] > 0) shape[0] = shard_range(shape[0], mesh.fsdp, 0).size();
    sum += {whole, numel(shape), p.cut.dim < 0 ? whole : 0, 1};
  }
  return sum;
}

}  // namespace

UnitSize& UnitSize::operator+=(const UnitSize& other) {
  tensor_parallel += other.tensor_parallel;
  sharded += other.sharded;
  replicated += other.replicated;
  count += other.count;
  return *this;
}

UnitSize LocalModel::all() const {
  const std::int64_t layers = model.layers;
  UnitSize sum = root;
  sum += {layers * block.tensor_parallel, layers * block.sharded, layers * block.replicated,
          static_cast<int>(layers) * block.count};
  return sum;
}

LocalModel local_model(const ModelShape& model, const ModelParameters& parameters,
                       const MeshSizes& mesh, const PlanChoice& plan, const Workload& work) {
  LocalModel local{.model = model, .mesh = mesh, .plan = plan, .work = work};
  local.block = size_of(parameters.block, mesh);
  local.root = size_of(parameters.before, mesh);
  local.root += size_of(parameters.after, mesh);
  const std::int64_t kv_heads = shard_range(model.kv_heads, mesh.tp, 0).size();
  local.heads = kv_heads * (model.heads / model.kv_heads);
  local.q = local.heads * model.head_dim;
  local.kv = kv_heads * model.head_dim;
  local.inner = shard_range(model.intermediate, mesh.tp, 0).size();
  local.vocab = shard_range(model.vocab, mesh.tp, 0).size();
  local.rows = work.micro_batch * work.sequence;
  local.stream_rows = plan.sequence_parallel
                          ? work.micro_batch * shard_range(work.sequence, mesh.tp, 0).size()
                          : local.rows;
  local.element_bytes = static_cast<std::int64_t>(dtype_size(plan.dtype));
  return local;
}

LocalModel local_model(const ModelShape& model, const MeshSizes& mesh, const PlanChoice& plan,
                       const Workload& work) {
  return local_model(model, model_parameters(model), mesh, plan, work);
}

}  // namespace meshloom::planner
