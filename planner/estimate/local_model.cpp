// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/local_model.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "planner/communication_sizes.h"
#include "planner/estimate/collective_bytes.h"
#include "planner/estimate/model_shards.h"
#include "planner/name_pattern.h"
#include "planner/shard.h"

namespace meshloom::planner {
namespace {

using Choices = std::vector<ShardChoice>;

/// Of the parameters of a unit whose parameters are sharded as `choices` say.
UnitSize size_of(const std::vector<ModelParameter>& list, const Choices& choices,
                 const MeshSizes& mesh) {
  UnitSize sum;
  for (std::size_t i = 0; i < list.size(); ++i) {
    Shape shape = list[i].local_shape(0);
    const std::int64_t whole = numel(shape);
    sum.tensor_parallel += whole;
    if (const std::optional<int> dim = choices[i].dim) {
      if (shape[*dim] > 0)
        shape[*dim] = shard_range(shape[*dim], mesh.parameter_shards(), 0).size();
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
    if (list[i].summands) sum.summands += numel(shape);
  }
  sum.flat = sum.packed_shards;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!choices[i].dim) continue;
    Shape shape = list[i].local_shape(0);
    shape[*choices[i].dim] = shard_range(shape[*choices[i].dim], mesh.parameter_shards(), 0).size();
    if (shards_travel_alone(*choices[i].dim, numel(shape)))
      sum.flat = align_shard(sum.flat) + numel(shape);
  }
  if (sum.packed > 0) ++sum.messages;
  return sum;
}

/// The same of those alone that are trained: no pattern covers their names behind `prefix`.
UnitSize trained_size_of(const std::vector<ModelParameter>& list, const Choices& choices,
                         const MeshSizes& mesh, const std::vector<std::string>& frozen,
                         const std::string& prefix) {
  std::vector<ModelParameter> trained;
  Choices their_choices;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (std::any_of(frozen.begin(), frozen.end(), [&](const std::string& pattern) {
          return covers_pattern(pattern, prefix + list[i].name);
        }))
      continue;
    trained.push_back(list[i]);
    their_choices.push_back(choices[i]);
  }
  return size_of(trained, their_choices, mesh);
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
GradientSums gradient_sums(const StyledModel& styled, std::int64_t layers,
                           const ModelShards& shards, const MeshSizes& mesh) {
  const auto sizes = [&](const std::vector<StyledModule>& modules, const Choices& choices) {
    const std::vector<ModelParameter> list = parameters_of(modules);
    std::vector<std::int64_t> result;
    for (std::size_t i = list.size(); i-- > 0;)
      if (!choices[i].dim) result.push_back(numel(list[i].local_shape(0)));
    return result;
  };
  Buckets buckets(mesh.dp * mesh.fsdp * mesh.cp);
  for (const std::int64_t size : sizes(styled.after, shards.after)) buckets.add(size);
  const std::vector<std::int64_t> block = sizes(styled.block, shards.block);
  for (std::int64_t layer = 0; layer < layers; ++layer)
    for (const std::int64_t size : block) buckets.add(size);
  for (const std::int64_t size : sizes(styled.before, shards.before)) buckets.add(size);
  return buckets.take();
}

}  // namespace

UnitSize& UnitSize::operator+=(const UnitSize& other) {
  tensor_parallel += other.tensor_parallel;
  sharded += other.sharded;
  summands += other.summands;
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
  sum += {n * block.tensor_parallel, n * block.sharded, n * block.summands,
          n * block.gathered,        n * block.shards,  n * block.packed,
          n * block.packed_shards,   n * block.flat,    static_cast<int>(n) * block.messages};
  return sum;
}

std::int64_t LocalModel::trained_shards() const {
  std::int64_t sum = trained_root.sharded;
  for (const UnitSize& layer : trained_layers) sum += layer.sharded;
  return sum;
}

LocalModel sized_model(const ModelGraphs& model, const StyledModel& styled, const MeshSizes& mesh,
                       const ParallelPlan& plan, const Workload& work) {
  if (!plan.checkpoint_choices.empty())
    throw Unimplemented(
        "plan.activation_checkpoint_choices: blocks that keep different things are not estimated, "
        "only activation_checkpoint for all of them");
  const std::int64_t layers = model.modules().layers;
  LocalModel local{
      .model = model.shape(), .mesh = mesh, .plan = plan, .work = work, .pass = nullptr};
  const ModelShards shards = model_shards(styled, model.modules(), mesh, plan);
  std::vector<ModelParameter> block = parameters_of(styled.block),
                              root = parameters_of(styled.before);
  const std::vector<ModelParameter> after = parameters_of(styled.after);
  root.insert(root.end(), after.begin(), after.end());
  Choices root_choices = shards.before;
  root_choices.insert(root_choices.end(), shards.after.begin(), shards.after.end());
  local.block = size_of(block, shards.block, mesh);
  local.root = size_of(root, root_choices, mesh);
  for (const std::vector<ModelParameter>* list : {&block, &root})
    for (const ModelParameter& p : *list)
      if (p.summands && !p.name.ends_with("bias")) local.biases_alone = false;
  local.trained_root = local.root;
  local.trained_layers.assign(static_cast<std::size_t>(layers), local.block);
  if (!work.frozen.empty()) {
    const std::string& prefix = styled.block_prefix;
    local.trained_root = trained_size_of(root, root_choices, mesh, work.frozen, "");
    for (std::size_t layer = 0; layer < local.trained_layers.size(); ++layer)
      local.trained_layers[layer] = trained_size_of(block, shards.block, mesh, work.frozen,
                                                    fmt::format("{}.{}.", prefix, layer));
  }
  if (mesh.dp * mesh.fsdp * mesh.cp > 1)
    local.gradient_sums = gradient_sums(styled, layers, shards, mesh);
  local.element_bytes = static_cast<std::int64_t>(dtype_size(plan.dtype));
  return local;
}

LocalModel local_model(ModelGraphs& model, const MeshSizes& mesh, const ParallelPlan& plan,
                       const Workload& work) {
  const StyledModel styled = styled_model(model, plan, mesh.tp);
  const ModelGraph& graph = model.of(work.micro_batch, tokens_per_rank(mesh, work));
  const auto pass = std::make_shared<const ModelPass>(model_pass(graph, model.modules(), styled));
  LocalModel local = sized_model(model, styled, mesh, plan, work);
  local.rows = work.micro_batch * tokens_per_rank(mesh, work);
  local.activations = estimate_activations(*pass, plan.checkpointing, plan.dtype, work.device);
  local.pass = pass;
  return local;
}

}  // namespace meshloom::planner
