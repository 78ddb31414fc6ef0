// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/model.h"

namespace meshloom::nn {
namespace {

using BatchTensors = std::array<Tensor, 6>;

BatchTensors tensors_of(const Batch& b) {
  return {b.input_ids,      b.labels,       b.attention_mask,
          b.token_type_ids, b.position_ids, b.document_ids};
}

Batch batch_of(const BatchTensors& t, bool labels_shifted) {
  return {.input_ids = t[0],
          .labels = t[1],
          .labels_shifted = labels_shifted,
          .attention_mask = t[2],
          .token_type_ids = t[3],
          .position_ids = t[4],
          .document_ids = t[5]};
}

}  // namespace

std::vector<std::string> Model::input_names() const {
  return {"input_ids",      "labels",       "attention_mask",
          "token_type_ids", "position_ids", "document_ids"};
}

template <typename Forward>
Tensor Model::call_batch(const Batch& batch, Forward&& forward) {
  return call(tensors_of(batch), [&](const BatchTensors& in) {
    return std::array{forward(batch_of(in, batch.labels_shifted))};
  })[0];
}

Tensor Model::loss(const Batch& batch, float grad_scale, const ForwardOptions& options) {
  return call_batch(batch, [&](const Batch& b) { return compute_loss(b, grad_scale, options); });
}

Tensor Model::logits(const Batch& batch, const ForwardOptions& options) {
  return call_batch(batch, [&](const Batch& b) { return compute_logits(b, options); });
}

Tensor Model::decode(const Tensor& input_ids, KvCache& cache) {
  KvCache* const only = &cache;
  return decode(input_ids, KvCaches(&only, 1));
}

Tensor Model::decode(const Tensor& input_ids, KvCaches caches) {
  const NoGradGuard no_grad(context());
  const BatchInvariantGuard invariant(context(), caches.size() > 1);
  Batch batch;
  batch.input_ids = input_ids;
  return call_batch(batch, [&](const Batch& b) { return compute_decode(b, caches); });
}

}  // namespace meshloom::nn
