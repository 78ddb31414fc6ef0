// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/batch_loader.h"

#include "daemon/train/data/permutation.h"
#include "kernels/base/error.h"

namespace meshloom::train {

BatchLoader::BatchLoader(std::shared_ptr<const Dataset> dataset, BatchPlan plan, std::uint64_t seed,
                         bool shuffle)
    : dataset_(std::move(dataset)), plan_(plan), seed_(seed), shuffle_(shuffle) {
  check_internal(dataset_->size() > 0, "batch loader: the dataset has no samples");
}

std::int64_t BatchLoader::sample_at(std::int64_t g) const {
  const std::int64_t n = dataset_->size();
  if (!shuffle_) return g % n;
  return Permutation(n, seed_, static_cast<std::uint64_t>(g / n))(g % n);
}

std::vector<HostBatch> BatchLoader::load(std::int64_t position, std::int64_t rank,
                                         std::int64_t limit) const {
  BatchPlan plan = plan_;
  plan.global_batch_size = limit;
  const std::int64_t seq_len = dataset_->options().seq_len;
  const bool documents = dataset_->options().document_mask;
  std::vector<HostBatch> batches(static_cast<std::size_t>(plan.micro_batches()));
  for (std::size_t k = 0; k < batches.size(); ++k) {
    HostBatch& batch = batches[k];
    const planner::ShardRange range = plan.of(static_cast<std::int64_t>(k), rank);
    batch.rows = range.size();
    batch.first_sample = range.begin;
    const auto values = static_cast<std::size_t>(batch.rows * seq_len);
    batch.inputs.resize(values);
    batch.labels.resize(values);
    if (documents) batch.documents.resize(values);
    for (std::int64_t row = 0; row < batch.rows; ++row) {
      const auto part = [&](std::vector<std::int64_t>& all) {
        return std::span(all).subspan(static_cast<std::size_t>(row * seq_len),
                                      static_cast<std::size_t>(seq_len));
      };
      const Dataset::Row target = {part(batch.inputs), part(batch.labels),
                                   documents ? part(batch.documents) : std::span<std::int64_t>()};
      const std::int64_t place = position + range.begin + row;
      const std::int64_t labels = dataset_->read(sample_at(place), target);
      batch.tokens += labels;
      const auto& masked = dataset_->options().masked;
      batch.counted +=
          masked ? mask_sample(*masked, seed_, place, target.inputs, target.labels) : labels;
    }
  }
  return batches;
}

nn::Batch to_batch(ExecutionContext& context, const HostBatch& host, std::int64_t seq_len) {
  const Shape shape = {host.rows, seq_len};
  nn::Batch batch;
  batch.input_ids = from_values(context, shape, std::span<const std::int64_t>(host.inputs));
  batch.labels = from_values(context, shape, std::span<const std::int64_t>(host.labels));
  if (!host.documents.empty())
    batch.document_ids = from_values(context, shape, std::span<const std::int64_t>(host.documents));
  return batch;
}

}  // namespace meshloom::train
