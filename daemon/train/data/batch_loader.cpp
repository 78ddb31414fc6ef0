// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/batch_loader.h"

#include "daemon/train/data/permutation.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

/// Lengths of the documents among the first `inputs` positions of a row; of all of them together
/// where no documents are told.
void add_spans(std::span<const std::int64_t> documents, std::int64_t inputs,
               std::vector<std::int64_t>& spans) {
  const auto length = static_cast<std::size_t>(inputs);
  std::size_t begin = 0;
  for (std::size_t s = 1; s <= length; ++s) {
    if (s < length && (documents.empty() || documents[s] == documents[begin])) continue;
    spans.push_back(static_cast<std::int64_t>(s - begin));
    begin = s;
  }
}

/// Positions of a row that begin anew at each of its documents.
void set_positions(std::span<const std::int64_t> documents, std::span<std::int64_t> positions) {
  std::size_t begin = 0;
  for (std::size_t s = 0; s < positions.size(); ++s) {
    if (documents[s] != documents[begin]) begin = s;
    positions[s] = static_cast<std::int64_t>(s - begin);
  }
}

}  // namespace

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

std::vector<TokenBatch> BatchLoader::load(std::int64_t position, std::int64_t rank,
                                          std::int64_t limit) const {
  BatchPlan plan = plan_;
  plan.global_batch_size = limit;
  std::vector<TokenBatch> batches(static_cast<std::size_t>(plan.micro_batches()));
  for (std::size_t k = 0; k < batches.size(); ++k) {
    TokenBatch& batch = batches[k];
    const planner::ShardRange range = plan.of(static_cast<std::int64_t>(k), rank);
    batch.rows = range.size();
    batch.length = dataset_->options().seq_len;
    batch.first_sample = range.begin;
    fill(batch, position + range.begin);
  }
  return batches;
}

void BatchLoader::fill(TokenBatch& batch, std::int64_t place) const {
  const DatasetOptions& options = dataset_->options();
  const auto length = static_cast<std::size_t>(options.seq_len);
  const std::size_t values = static_cast<std::size_t>(batch.rows) * length;
  batch.inputs.resize(values);
  batch.labels.resize(values);
  // A model that sees both sides must not see padding.
  if (options.document_mask || options.masked) batch.documents.resize(values);
  if (options.reset_positions) batch.positions.resize(values);
  bool padded = false;
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    const auto part = [&](std::vector<std::int64_t>& all) {
      return all.empty() ? std::span<std::int64_t>()
                         : std::span(all).subspan(static_cast<std::size_t>(row) * length, length);
    };
    const Dataset::Row target = {part(batch.inputs), part(batch.labels), part(batch.documents)};
    const Dataset::RowCounts read = dataset_->read(sample_at(place + row), target);
    batch.tokens += dataset_->chat() ? read.inputs : read.labels;
    batch.counted += options.masked ? mask_sample(*options.masked, seed_, place + row,
                                                  target.inputs, target.labels)
                                    : read.labels;
    if (!options.masked) batch.bytes += options.bytes.of(target.labels);
    add_spans(target.documents, read.inputs, batch.spans);
    if (options.reset_positions) set_positions(target.documents, part(batch.positions));
    padded = padded || read.inputs < options.seq_len;
  }
  if (!options.document_mask && !padded) batch.documents.clear();
}

}  // namespace meshloom::train
