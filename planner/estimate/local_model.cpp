// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/local_model.h"

#include <algorithm>

#include "planner/communication_sizes.h"
#include "planner/estimate/collective_bytes.h"
#include "planner/estimate/model_shards.h"
#include "planner/shard.h"

namespace meshloom::planner {
namespace {

using Choices = std::vector<ShardChoice>;

/// Of the parameters of a unit whose parameters are sharded as `choices` say.
UnitSize size_of(const std::vector<ParameterShape>& list, const Choices& choices,
                 const MeshSizes& mesh) {
  UnitSize sum;
  for (std::size_t i = 0; i < list.size(); ++i) {
    Shape shape = tensor_parallel_shape(list[i], mesh.tp, 0);
    const std::int64_t whole = numel(shape);
    sum.tensor_parallel += whole;
    if (const std::optional<int> dim = choices[i].dim) {
      if (shape[*dim] > 0) shape[*dim] = shard_range(shape[*dim], mesh.fsdp, 0).size();
      const std::int64_t shard = numel(shape);
      sum.gathered += whole;
      sum.shards += shard;
      if (shards_travel_alone(*dim, shard)) {
        ++sum.messages;
      } else {
        sum.packed += whole;
        sum.packed_shards += shard;
      }
    }
    sum.sharded += numel(shape);
    // Gradients of whole keys and values are summed before they reach the weights.
    const TensorSharding& sharding = list[i].sharding;
    if (sharding.dim < 0 && !sharding.whole_where_few) sum.replicated += numel(shape);
  }
  sum.flat = sum.packed_shards;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!choices[i].dim) continue;
    Shape shape = tensor_parallel_shape(list[i], mesh.tp, 0);
    shape[*choices[i].dim] = shard_range(shape[*choices[i].dim], mesh.fsdp, 0).size();
    if (shards_travel_alone(*choices[i].dim, numel(shape)))
      sum.flat = align_shard(sum.flat) + numel(shape);
  }
  if (sum.packed > 0) ++sum.messages;
  return sum;
}

/// Biases that tp does not shard behind weights that it does, as far as they stay.
std::int64_t row_bias_elements(const std::vector<ParameterShape>& block, const Choices& choices,
                               const MeshSizes& mesh) {
  std::int64_t sum = 0;
  for (std::size_t i = 1; i < block.size(); ++i) {
    const ParameterShape& weight = block[i - 1];
    const ParameterShape& bias = block[i];
    const std::string owner = weight.name.substr(0, weight.name.rfind('.'));
    if (weight.sharding.dim >= 0 && bias.sharding.dim < 0 && bias.name == owner + ".bias")
      sum += choices[i].dim ? shard_range(bias.shape[0], mesh.fsdp, 0).size() : bias.shape[0];
  }
  return sum;
}

class Buckets {
 public:
  explicit Buckets(int group) : group_(group) {}

  void add(std::int64_t size) {
    elements_ = (elements_ + 15) / 16 * 16 + size;
    ++parameters_;
    if (elements_ >= kBucketElements) close();
  }
  GradientSums take() {
    close();
    return sums_;
  }

 private:
  static constexpr std::int64_t kBucketElements = kGradientBucketBytes / 4;

  void close() {
    if (parameters_ == 0) return;
    const std::int64_t all = elements_ + parameters_;
    ++sums_.calls;
    sums_.elements += all;
    sums_.bytes_sent += bytes_sent(CollectiveKind::kAllReduce, all, 4, group_);
    elements_ = parameters_ = 0;
  }

  int group_;
  std::int64_t elements_ = 0, parameters_ = 0;
  GradientSums sums_;
};

/// Of the parameters that stay whole, from the last to the first.
GradientSums gradient_sums(const ModelParameters& parameters, std::int64_t layers,
                           const ModelShards& shards, const MeshSizes& mesh) {
  const auto sizes = [&](const std::vector<ParameterShape>& list, const Choices& choices) {
    std::vector<std::int64_t> result;
    for (std::size_t i = list.size(); i-- > 0;)
      if (!choices[i].dim) result.push_back(numel(tensor_parallel_shape(list[i], mesh.tp, 0)));
    return result;
  };
  Buckets buckets(mesh.dp * mesh.fsdp);
  for (const std::int64_t size : sizes(parameters.after, shards.after)) buckets.add(size);
  const std::vector<std::int64_t> block = sizes(parameters.block, shards.block);
  for (std::int64_t layer = 0; layer < layers; ++layer)
    for (const std::int64_t size : block) buckets.add(size);
  for (const std::int64_t size : sizes(parameters.before, shards.before)) buckets.add(size);
  return buckets.take();
}

}  // namespace

UnitSize& UnitSize::operator+=(const UnitSize& other) {
  tensor_parallel += other.tensor_parallel;
  sharded += other.sharded;
  replicated += other.replicated;
  gathered += other.gathered;
  shards += other.shards;
  packed += other.packed;
  packed_shards += other.packed_shards;
  flat += other.flat;
  messages += other.messages;
  return *this;
}

UnitSize LocalModel::all() const {
  const std::int64_t n = model.layers;
  UnitSize sum = root;
  sum += {n * block.tensor_parallel, n * block.sharded, n * block.replicated,
          n * block.gathered,        n * block.shards,  n * block.packed,
          n * block.packed_shards,   n * block.flat,    static_cast<int>(n) * block.messages};
  return sum;
}

LocalModel local_model(const ModelShape& model, const ModelParameters& parameters,
                       const MeshSizes& mesh, const PlanChoice& plan, const Workload& work) {
  LocalModel local{.model = model, .mesh = mesh, .plan = plan, .work = work};
  const ModelShards shards = model_shards(parameters, model.layers, mesh, plan);
  local.block = size_of(parameters.block, shards.block, mesh);
  std::vector<ParameterShape> root = parameters.before;
  root.insert(root.end(), parameters.after.begin(), parameters.after.end());
  Choices root_choices = shards.before;
  root_choices.insert(root_choices.end(), shards.after.begin(), shards.after.end());
  local.root = size_of(root, root_choices, mesh);
  const TensorGroups& groups = plan.tensor_groups;
  const auto part = [&](std::int64_t size, bool sharded) {
    return sharded ? shard_range(size, mesh.tp, 0).size() : size;
  };
  local.whole_kv = groups.attention && model.kv_heads != model.heads && model.kv_heads < mesh.tp;
  const std::int64_t kv_heads = part(model.kv_heads, groups.attention && !local.whole_kv);
  local.heads =
      local.whole_kv ? part(model.heads, true) : kv_heads * (model.heads / model.kv_heads);
  local.q = local.heads * model.head_dim;
  local.kv = kv_heads * model.head_dim;
  local.inner = part(model.intermediate, groups.mlp);
  local.vocab = part(model.vocab, groups.output);
  local.rows = work.micro_batch * work.sequence;
  local.stream_rows = plan.sequence_parallel
                          ? work.micro_batch * shard_range(work.sequence, mesh.tp, 0).size()
                          : local.rows;
  local.row_biases = row_bias_elements(parameters.block, shards.block, mesh);
  if (mesh.dp * mesh.fsdp > 1)
    local.gradient_sums = gradient_sums(parameters, model.layers, shards, mesh);
  local.element_bytes = static_cast<std::int64_t>(dtype_size(plan.dtype));
  return local;
}

LocalModel local_model(const ModelShape& model, const MeshSizes& mesh, const PlanChoice& plan,
                       const Workload& work) {
  return local_model(model, model_parameters(model, plan.tensor_groups, mesh.tp), mesh, plan, work);
}

}  // namespace meshloom::planner
