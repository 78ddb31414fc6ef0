// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/causal_model.h"

#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/loss.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::nn {

Tensor CausalModel::loss(const Batch& batch, float grad_scale, const ForwardOptions& options) {
  check_batch(batch, config_.max_position_embeddings);
  const Tensor labels = next_token_labels(batch);
  return ops::linear_cross_entropy(hidden(batch, options, nullptr), output_weight(), {}, labels,
                                   {.grad_scale = grad_scale});
}

Tensor CausalModel::logits(const Batch& batch, const ForwardOptions& options) {
  check_batch(batch, config_.max_position_embeddings);
  return ops::linear(hidden(batch, options, nullptr), output_weight(), {});
}

std::unique_ptr<KvCache> CausalModel::make_cache(std::int64_t batch, std::int64_t max_length) {
  check(max_length <= config_.max_position_embeddings,
        "key-value cache: {} positions are more than the model's context of {}", max_length,
        config_.max_position_embeddings);
  return std::make_unique<KvCache>(context(),
                                   KvCache::Sizes{.layers = config_.num_layers,
                                                  .batch = batch,
                                                  .kv_heads = config_.num_kv_heads,
                                                  .max_length = max_length,
                                                  .head_dim = config_.head_dim},
                                   dtype_);
}

Tensor CausalModel::decode(const Tensor& input_ids, KvCache& cache) {
  const NoGradGuard no_grad(context());
  Batch batch;
  batch.input_ids = input_ids;
  check_batch(batch, config_.max_position_embeddings);
  cache.check_room(input_ids.size(0), input_ids.size(1));
  const Tensor all = hidden(batch, {}, &cache);
  const Tensor last = ops::squeeze(ops::slice(all, 1, all.size(1) - 1, all.size(1)), 1);
  cache.advance(input_ids.size(1));
  return ops::cast(ops::linear(last, output_weight(), {}), DType::kFloat32);
}

}  // namespace meshloom::nn
