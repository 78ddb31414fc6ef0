// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/local_model.h"

#include <algorithm>

#include "planner/estimate/collective_bytes.h"
#include "planner/shard.h"

namespace meshloom::planner {
namespace {

// As daemon/parallel/fully_shard: float32 bytes of a shard.
constexpr std::int64_t kDirectBytes = 32 << 10;

UnitSize size_of(const std::vector<ParameterShape>& list, const MeshSizes& mesh) {
  UnitSize sum;
  for (const ParameterShape& p : list) {
    Shape shape = tensor_parallel_shape(p, mesh.tp, 0);
    const std::int64_t whole = numel(shape);
    if (shape[0] > 0) shape[0] = shard_range(shape[0], mesh.fsdp, 0).size();
    const std::int64_t sharded = numel(shape);
    sum += {whole, sharded, p.cut.dim < 0 ? whole : 0, 1, sharded * 4 >= kDirectBytes ? 1 : 0};
  }
  return sum;
}

/// Biases that tp does not cut behind weights that it does.
std::int64_t row_bias_elements(const std::vector<ParameterShape>& block) {
  std::int64_t sum = 0;
  for (std::size_t i = 1; i < block.size(); ++i) {
    const ParameterShape& weight = block[i - 1];
    const ParameterShape& bias = block[i];
    const std::string owner = weight.name.substr(0, weight.name.rfind('.'));
    if (weight.cut.dim >= 0 && bias.cut.dim < 0 && bias.name == owner + ".bias")
      sum += numel(bias.shape);
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
  static constexpr std::int64_t kBucketElements = (8 << 20) / 4;

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

/// From the last parameter to the first.
GradientSums gradient_sums(const ModelParameters& parameters, std::int64_t layers,
                           const MeshSizes& mesh) {
  const auto sizes = [&](const std::vector<ParameterShape>& list) {
    std::vector<std::int64_t> result;
    for (auto p = list.rbegin(); p != list.rend(); ++p)
      result.push_back(numel(tensor_parallel_shape(*p, mesh.tp, 0)));
    return result;
  };
  Buckets buckets(mesh.dp);
  for (const std::int64_t size : sizes(parameters.after)) buckets.add(size);
  const std::vector<std::int64_t> block = sizes(parameters.block);
  for (std::int64_t layer = 0; layer < layers; ++layer)
    for (const std::int64_t size : block) buckets.add(size);
  for (const std::int64_t size : sizes(parameters.before)) buckets.add(size);
  return buckets.take();
}

}  // namespace

UnitSize& UnitSize::operator+=(const UnitSize& other) {
  tensor_parallel += other.tensor_parallel;
  sharded += other.sharded;
  replicated += other.replicated;
  count += other.count;
  direct += other.direct;
  return *this;
}

UnitSize LocalModel::all() const {
  const std::int64_t layers = model.layers;
  UnitSize sum = root;
  sum += {layers * block.tensor_parallel, layers * block.sharded, layers * block.replicated,
          static_cast<int>(layers) * block.count, static_cast<int>(layers) * block.direct};
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
  local.row_biases = row_bias_elements(parameters.block);
  if (mesh.dp > 1 && mesh.fsdp == 1)
    local.gradient_sums = gradient_sums(parameters, model.layers, mesh);
  local.element_bytes = static_cast<std::int64_t>(dtype_size(plan.dtype));
  return local;
}

LocalModel local_model(const ModelShape& model, const MeshSizes& mesh, const PlanChoice& plan,
                       const Workload& work) {
  return local_model(model, model_parameters(model), mesh, plan, work);
}

}  // namespace meshloom::planner
