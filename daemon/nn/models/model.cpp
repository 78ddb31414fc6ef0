// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/model.h"

#include <array>
#include <string_view>

#include "daemon/nn/modules/output_projection.h"

namespace meshloom::nn {
namespace {

using BatchTensors = std::array<Tensor, BatchInput::kCount>;

constexpr std::array<std::string_view, BatchInput::kCount> kInputNames = {
    "input_ids",    "labels",       "attention_mask", "token_type_ids",
    "position_ids", "document_ids", "label_weights"};

BatchTensors tensors_of(const Batch& b) {
  return {b.input_ids,    b.labels,       b.attention_mask, b.token_type_ids,
          b.position_ids, b.document_ids, b.label_weights};
}

/// The batch with what hooks have made of its tensors.
Batch batch_of(const BatchTensors& t, const Batch& given) {
  return {.input_ids = t[BatchInput::kInputIds],
          .labels = t[BatchInput::kLabels],
          .labels_shifted = given.labels_shifted,
          .attention_mask = t[BatchInput::kAttentionMask],
          .token_type_ids = t[BatchInput::kTokenTypeIds],
          .position_ids = t[BatchInput::kPositionIds],
          .document_ids = t[BatchInput::kDocumentIds],
          .label_weights = t[BatchInput::kLabelWeights],
          .document_rows = given.document_rows};
}

}  // namespace

std::span<const std::string_view> Model::input_names() const { return kInputNames; }

template <typename Forward>
auto Model::call_batch(const Batch& batch, Forward&& forward) {
  return call(tensors_of(batch),
              [&](const BatchTensors& in) { return forward(batch_of(in, batch)); });
}

Tensor Model::loss(const Batch& batch, float grad_scale, const ForwardOptions& options) {
  return call_batch(
      batch, [&](const Batch& b) { return std::array{compute_loss(b, grad_scale, options)}; })[0];
}

ops::WeightedLoss Model::weighted_loss(const Batch& batch, float grad_scale,
                                       const ForwardOptions& options) {
  auto results = call_batch(batch, [&](const Batch& b) {
    const ops::WeightedLoss loss = output_projection().weighted_loss(
        compute_hidden(b, options), b.labels, b.label_weights, grad_scale);
    return std::array{loss.sum, loss.losses};
  });
  return {std::move(results[0]), std::move(results[1])};
}

Tensor Model::token_losses(const Batch& batch, const ForwardOptions& options) {
  return call_batch(batch, [&](const Batch& b) {
    return std::array{output_projection().token_losses(compute_hidden(b, options), b.labels)};
  })[0];
}

Tensor Model::logits(const Batch& batch, const ForwardOptions& options) {
  return call_batch(batch, [&](const Batch& b) {
    return std::array{output_projection()(compute_hidden(b, options))};
  })[0];
}

Tensor Model::decode(const Tensor& input_ids, KvCache& cache) {
  KvCache* const only = &cache;
  return decode(input_ids, KvCaches(&only, 1));
}

Tensor Model::decode(const Tensor& input_ids, KvCaches caches) {
  const NoGradGuard no_grad(context());
  // A sequence alone takes the way that it takes among others.
  const bool next_ids = input_ids.ndim() == 2 && input_ids.size(1) == 1;
  const BatchInvariantGuard invariant(context(), next_ids);
  Batch batch;
  batch.input_ids = input_ids;
  return call_batch(batch,
                    [&](const Batch& b) { return std::array{compute_decode(b, caches)}; })[0];
}

}  // namespace meshloom::nn
