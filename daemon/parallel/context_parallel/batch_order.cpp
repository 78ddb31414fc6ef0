// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/batch_order.h"

#include <algorithm>
#include <map>

#include "daemon/nn/replicated_like.h"
#include "daemon/parallel/context_parallel/sequence_sharding.h"
#include "kernels/base/error.h"

namespace meshloom::parallel {
namespace {

using planner::RowMask;

constexpr int kRows = 0, kSequence = 1;  // dims of [B,S]

/// The tensors of a batch by name.
class BatchTensors {
 public:
  BatchTensors(const nn::Model& model, std::span<Tensor> in)
      : names_(model.input_names()), tensors_(in) {}

  Tensor& operator[](const char* name) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    check_internal(found != names_.end(), "a model has no input {}", name);
    return tensors_[static_cast<std::size_t>(found - names_.begin())];
  }

 private:
  std::vector<std::string> names_;
  std::span<Tensor> tensors_;
};

std::vector<RowMask> row_masks(const nn::ModelConfig& config, const Tensor& ids,
                               const Tensor& documents, DocumentReader& reader) {
  const RowMask whole{{.is_causal = config.architecture != nn::Architecture::kBert}, nullptr};
  std::vector<RowMask> rows(static_cast<std::size_t>(ids.size(kRows)), whole);
  if (!documents) return rows;
  const auto of_rows = reader.rows(local_of(documents));
  for (std::size_t row = 0; row < rows.size(); ++row)
    rows[row].documents = of_rows->at(row).documents;
  return rows;
}

}  // namespace

void shard_batch(dtensor::DistributedEngine& engine, int mesh_dim,
                 const planner::ContextParallelPlan& plan, const nn::Model& model,
                 std::span<Tensor> in, DocumentReader& documents) {
  BatchTensors batch(model, in);
  if (!batch["labels"]) return;
  Tensor& ids = batch["input_ids"];
  if (ids.ndim() != 2) return;  // refused by the model
  const nn::ModelConfig& config = model.config();
  const int ranks = engine.context().mesh.layout()->dim_size(mesh_dim);
  const std::int64_t length = ids.size(kSequence);
  if (!batch["position_ids"]) {
    // 0, 1, 2 .. in every row.
    std::vector<std::int64_t> values(static_cast<std::size_t>(ids.numel()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<std::int64_t>(i) % length;
    batch["position_ids"] = nn::replicated_like(
        from_values(ids.context(), ids.shape(), std::span<const std::int64_t>(values)), ids);
  }
  if (!batch["token_type_ids"] && config.architecture == nn::Architecture::kBert)
    batch["token_type_ids"] =
        nn::replicated_like(zeros(ids.context(), ids.shape(), DType::kInt64), ids);
  // How many layers of the model have each window.
  std::map<std::int64_t, std::int64_t> layers;
  for (std::int64_t i = 0; i < config.num_layers; ++i) ++layers[config.window_of(i) - 1];
  std::vector<planner::LayerWindow> windows;
  for (const auto& [window_left, count] : layers) windows.push_back({window_left, count});
  const planner::DimOrderPtr order =
      planner::balanced_order(plan.load_balancer, length, ranks, kRows,
                              row_masks(config, ids, batch["document_ids"], documents), windows);
  for (const char* name : {"input_ids", "token_type_ids", "position_ids"}) {
    Tensor& x = batch[name];
    if (x && x.shape() == ids.shape()) x = shard_in_order(x, kSequence, mesh_dim, order);
  }
}

}  // namespace meshloom::parallel
