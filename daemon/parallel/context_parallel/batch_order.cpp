// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/batch_order.h"

#include <map>

#include "daemon/dtensor/api/from_local.h"
#include "daemon/nn/replicated_like.h"
#include "daemon/parallel/context_parallel/sequence_sharding.h"
#include "planner/local_part.h"

namespace meshloom::parallel {
namespace {

using nn::BatchInput;
using planner::RowMask;
using planner::SpecPtr;

constexpr int kRows = 0, kSequence = 1;  // dims of [B,S]

/// How the balancer deals rows [rows,length]. `documents`: null if there are none.
planner::DimOrderPtr order_of(const BatchSharding& sharding, std::int64_t rows, std::int64_t length,
                              const planner::DocumentRows* documents) {
  const nn::ModelConfig& config = sharding.model;
  const RowMask whole{{.is_causal = config.is_causal()}, nullptr};
  std::vector<RowMask> masks(static_cast<std::size_t>(rows), whole);
  for (std::size_t row = 0; documents != nullptr && row < masks.size(); ++row)
    masks[row].documents = documents->at(row)->documents;
  // How many layers of the model have each window.
  std::map<std::int64_t, std::int64_t> layers;
  for (std::int64_t i = 0; i < config.num_layers; ++i) ++layers[config.window_of(i) - 1];
  std::vector<planner::LayerWindow> windows;
  for (const auto& [window_left, count] : layers) windows.push_back({window_left, count});
  const int ranks = sharding.engine.context().mesh.layout()->dim_size(sharding.mesh_dim);
  return planner::balanced_order(sharding.plan.load_balancer, length, ranks, kRows, masks, windows);
}

/// 0, 1, 2 .. in every row.
std::vector<std::int64_t> positions_of(std::int64_t rows, std::int64_t length) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(rows * length));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i) % length;
  return values;
}

/// The layouts of tensors [B,S] and [B,S,K] of a batch.
class BatchLayouts {
 public:
  BatchLayouts(const BatchSharding& sharding, planner::DimOrderPtr order)
      : engine_(sharding.engine), mesh_dim_(sharding.mesh_dim), order_(std::move(order)) {}

  SpecPtr whole(const Shape& shape) const {
    const planner::MeshPtr& mesh = engine_.context().mesh.layout();
    return std::make_shared<const planner::DTensorSpec>(
        mesh, planner::Placements(static_cast<std::size_t>(mesh->ndim())), shape);
  }
  SpecPtr sharded(const Shape& shape) const {
    const SpecPtr before = whole(shape);
    planner::Placements placements = before->placements();
    std::vector<planner::DimOrderPtr> orders(placements.size());
    placements[static_cast<std::size_t>(mesh_dim_)] = planner::Placement::shard(kSequence);
    orders[static_cast<std::size_t>(mesh_dim_)] = order_;
    return planner::with_placements(*before, std::move(placements), std::move(orders));
  }
  /// The tensor of which `local` is this rank's part; that may be undefined where it has no tokens.
  Tensor lay_out(HostUploads& uploads, const Tensor& local, DType dtype,
                 const SpecPtr& spec) const {
    const Shape shape = spec->local_shape(engine_.context().mesh.coordinates());
    return dtensor::from_local(local ? local : empty(uploads.context(), shape, dtype), engine_,
                               spec);
  }

 private:
  dtensor::DistributedEngine& engine_;
  int mesh_dim_;
  planner::DimOrderPtr order_;
};

}  // namespace

nn::Batch shard_batch(const BatchSharding& sharding, HostUploads& uploads,
                      const nn::HostBatch& host) {
  const Shape shape{host.rows, host.length};
  std::shared_ptr<const planner::DocumentRows> rows;
  if (!host.documents.empty()) rows = planner::document_rows(host.documents, host.rows);
  const BatchLayouts layouts(sharding, order_of(sharding, host.rows, host.length, rows.get()));
  const SpecPtr tokens = layouts.sharded(shape);
  const planner::LocalPart part = tokens->local_part(sharding.engine.context().mesh.coordinates());
  std::vector<std::int64_t> places;  // in the batch, of this rank's tokens
  for (std::int64_t row = 0; row < host.rows; ++row)
    for (const planner::ShardRange& range : part.ranges_of_row(kSequence, row))
      for (std::int64_t token = range.begin; token < range.end; ++token)
        places.push_back(row * host.length + token);
  nn::HostBatch mine = nn::some_tokens(host, places);
  mine.documents.clear();
  if (host.positions.empty())
    for (const std::int64_t place : places) mine.positions.push_back(place % host.length);
  nn::Batch batch = nn::to_batch(uploads, mine);
  const auto lay_out = [&](Tensor& local, DType dtype, const SpecPtr& spec) {
    local = layouts.lay_out(uploads, local, dtype, spec);
  };
  Shape labels = shape;
  if (host.targets > 1) labels.push_back(host.targets);
  lay_out(batch.input_ids, DType::kInt64, tokens);
  lay_out(batch.labels, DType::kInt64, layouts.sharded(labels));
  lay_out(batch.position_ids, DType::kInt64, tokens);
  if (!host.weights.empty()) lay_out(batch.label_weights, DType::kFloat32, tokens);
  if (sharding.model.type_vocab_size > 0) {
    batch.token_type_ids = zeros(uploads.context(), {mine.rows, mine.length}, DType::kInt64);
    lay_out(batch.token_type_ids, DType::kInt64, tokens);
  }
  if (!rows) return batch;
  batch.document_ids = uploads.tensor(shape, std::span(host.documents));
  lay_out(batch.document_ids, DType::kInt64, layouts.whole(shape));
  batch.document_rows = std::move(rows);
  return batch;
}

void shard_batch(const BatchSharding& sharding, std::span<Tensor> in, DocumentReader& documents) {
  Tensor& ids = in[BatchInput::kInputIds];
  Tensor& positions = in[BatchInput::kPositionIds];
  Tensor& types = in[BatchInput::kTokenTypeIds];
  if (!in[BatchInput::kLabels] || ids.ndim() != 2) return;  // other dims the model refuses
  if (!ids.layout()->spec->placement(sharding.mesh_dim).is_replicate()) return;
  if (!positions)
    positions = nn::replicated_like(from_values(ids.context(), ids.shape(),
                                                std::span<const std::int64_t>(positions_of(
                                                    ids.size(kRows), ids.size(kSequence)))),
                                    ids);
  if (!types && sharding.model.type_vocab_size > 0)
    types = nn::replicated_like(zeros(ids.context(), ids.shape(), DType::kInt64), ids);
  std::shared_ptr<const planner::DocumentRows> rows;
  if (const Tensor& given = in[BatchInput::kDocumentIds]) rows = documents.rows(local_of(given));
  const planner::DimOrderPtr order =
      order_of(sharding, ids.size(kRows), ids.size(kSequence), rows.get());
  const Shape shape = ids.shape();
  for (Tensor* x : {&ids, &types, &positions})
    if (*x && x->shape() == shape) *x = shard_in_order(*x, kSequence, sharding.mesh_dim, order);
}

}  // namespace meshloom::parallel
