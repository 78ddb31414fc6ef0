// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/model_support.h"

#include <vector>

#include "daemon/nn/replicated_like.h"
#include "daemon/tensor/autograd/checkpoint.h"
#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::nn {
namespace {

void check_like(const Tensor& tensor, const Tensor& input_ids, const char* name) {
  if (!tensor) return;
  check(tensor.shape() == input_ids.shape(), "{}: shape {} differs from input_ids' {}", name,
        tensor.shape(), input_ids.shape());
}

}  // namespace

void check_batch(const Batch& batch, std::int64_t context_length) {
  check(batch.input_ids.defined(), "input_ids: not given");
  check(batch.input_ids.dtype() == DType::kInt64 && batch.input_ids.ndim() == 2,
        "input_ids: {} {} where int64 [B,S] is expected", dtype_name(batch.input_ids.dtype()),
        batch.input_ids.shape());
  const std::int64_t length = batch.input_ids.size(1);
  check(length > 0, "input_ids: the sequence is empty");
  check(length <= context_length,
        "input_ids: a sequence of {} tokens is longer than the model's context of {}", length,
        context_length);
  if (batch.labels) {
    // One label a position, or several.
    Shape expected = batch.input_ids.shape();
    if (batch.labels.ndim() == 3) expected.push_back(batch.labels.size(2));
    check(batch.labels.shape() == expected, "labels: shape {} differs from input_ids' {}",
          batch.labels.shape(), batch.input_ids.shape());
  }
  check_like(batch.attention_mask, batch.input_ids, "attention_mask");
  check_like(batch.token_type_ids, batch.input_ids, "token_type_ids");
  check_like(batch.position_ids, batch.input_ids, "position_ids");
  check_like(batch.document_ids, batch.input_ids, "document_ids");
  check_like(batch.label_weights, batch.input_ids, "label_weights");
}

Tensor next_token_labels(const Batch& batch) {
  check(batch.labels.defined(), "loss: labels are not given");
  if (batch.labels_shifted) return batch.labels;
  ExecutionContext& context = batch.labels.context();
  const Tensor none =
      replicated_like(full(context, {batch.labels.size(0), 1}, -100, DType::kInt64), batch.labels);
  return ops::cat({ops::slice(batch.labels, 1, 1, batch.labels.size(1)), none}, 1);
}

Tensor cached_positions(const Tensor& input_ids, KvCaches caches) {
  std::vector<std::int64_t> positions;
  for (const KvCache* cache : caches) positions.push_back(cache->length());
  const Tensor values = from_values(input_ids.context(), {input_ids.size(0), 1},
                                    std::span<const std::int64_t>(positions));
  return replicated_like(values, input_ids);
}

Tensor mask_bias(const Tensor& attention_mask) {
  if (!attention_mask) return {};
  // By way of bool, since any mask but 0 means that the key is seen.
  const Tensor seen = ops::cast(ops::cast(attention_mask, DType::kBool), DType::kFloat32);
  return ops::unsqueeze(ops::unsqueeze(ops::log(seen), 1), 1);
}

Tensor split_features(const Tensor& x, std::int64_t heads) {
  return ops::reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads});
}

Tensor heads_first(const Tensor& x) { return ops::transpose(x, 1, 2); }

Tensor split_heads(const Tensor& x, std::int64_t heads) {
  return heads_first(split_features(x, heads));
}

Tensor merge_heads(const Tensor& x) {
  return ops::reshape(ops::transpose(x, 1, 2), {x.size(0), x.size(2), x.size(1) * x.size(3)});
}

OutputProjection::Options projection_options(const ModelConfig& config,
                                             const Embedding& embedding) {
  if (config.tie_word_embeddings) return {.tied = &embedding};
  return {.weight = Init{.kind = Init::Kind::kNormal,
                         .std = static_cast<float>(config.initializer_range)}};
}

Tensor activated_linear(const Linear& linear, const Tensor& x, ActivationKind activation) {
  if (activation == ActivationKind::kGelu) return linear(x, ops::Activation::kGelu);
  if (activation == ActivationKind::kGeluTanh) return linear(x, ops::Activation::kGeluTanh);
  return linear(activate(x, activation));
}

DropoutState dropout_state(const ExecutionContext& context, const ForwardOptions& options) {
  return {.training = options.training,
          .seed = context.seed(),
          .step = options.dropout_step,
          .first_sample = options.first_sample};
}

ops::SdpaOptions attention_options(const DropoutState& dropout, double p, std::int64_t layer,
                                   std::int64_t heads, const BatchDocuments& documents) {
  ops::SdpaOptions options;
  options.document_ids = documents.ids;
  options.document_rows = documents.rows;
  options.dropout_p = static_cast<float>(dropout.rate(p));
  options.dropout_random = dropout.stream(layer, DropoutSite::kAttention);
  options.dropout_first_head = static_cast<std::int64_t>(dropout.first_sample) * heads;
  return options;
}

MemoryKind memory_of_keys(const Tensor& x, KvCaches caches) {
  if (!caches.empty()) return MemoryKind::kDevice;
  const bool whole = !x.has_layout() || x.layout()->spec->sharding_dims(1).empty();
  return whole ? MemoryKind::kDevice : MemoryKind::kSymmetric;
}

Tensor cached_attention(const Tensor& q, const KvCache::KeyValue& next, KvCaches caches,
                        std::int64_t layer, ops::SdpaOptions options) {
  const auto attend = [&options](const Tensor& queries, const KvCache::KeyValue& kv) {
    return ops::scaled_dot_product_attention(queries, kv.k, kv.v, options).o;
  };
  if (caches.empty()) return attend(q, next);
  options.causal_bottom_right = true;
  // One query sees all that a cache with a window returns.
  if (q.size(2) == 1) options.window_left = -1;
  if (caches.size() == 1) return attend(q, caches[0]->append(layer, next.k, next.v));
  std::vector<KvCache::KeyValue> rows;
  for (std::size_t i = 0; i < caches.size(); ++i) {
    const auto row = [i](const Tensor& x) {
      const auto first = static_cast<std::int64_t>(i);
      return ops::slice(x, 0, first, first + 1);
    };
    rows.push_back(caches[i]->append(layer, row(next.k), row(next.v)));
  }
  return ops::attention_of_rows(q, rows, options.scale);
}

ResidualStream run_block(const Block& block, const ResidualStream& stream,
                         ActivationCheckpoint mode) {
  stream.residual.context().poll();
  if (mode == ActivationCheckpoint::kNone) return block(stream);
  const autograd::Segment segment = [block](std::span<const Tensor> inputs) {
    const ResidualStream out = block({inputs.size() == 2 ? inputs[1] : Tensor(), inputs[0]});
    return std::vector<Tensor>{out.residual, out.x};
  };
  std::vector<Tensor> inputs{stream.residual};
  if (stream.x) inputs.push_back(stream.x);
  const auto outputs = autograd::checkpoint(
      segment, inputs, {.keep_attention = mode == ActivationCheckpoint::kSelective});
  return {outputs[1], outputs[0]};
}

}  // namespace meshloom::nn
