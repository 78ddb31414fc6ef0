// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/causal_model.h"

#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::nn {
namespace {

void check_causal_batch(const Batch& batch, const ModelConfig& config) {
  check_batch(batch, config.longest_sequence());
  check(!batch.token_type_ids, "token_type_ids: given to a causal model, which has no token types");
}

}  // namespace

Tensor CausalModel::compute_loss(const Batch& batch, float grad_scale,
                                 const ForwardOptions& options) {
  check_causal_batch(batch, config_);
  const Tensor labels = next_token_labels(batch);
  return lm_head().loss(hidden(batch, options, {}), labels, grad_scale);
}

Tensor CausalModel::compute_hidden(const Batch& batch, const ForwardOptions& options) {
  check_causal_batch(batch, config_);
  return hidden(batch, options, {});
}

std::unique_ptr<KvCache> CausalModel::make_cache(std::int64_t max_length) {
  check(max_length <= config_.context_length(),
        "key-value cache: {} positions are more than the model's context of {}", max_length,
        config_.context_length());
  std::vector<std::int64_t> windows;
  for (std::int64_t i = 0; i < config_.num_layers; ++i) windows.push_back(config_.window_of(i));
  return std::make_unique<KvCache>(context(),
                                   KvCache::Sizes{.kv_heads = config_.num_kv_heads,
                                                  .max_length = max_length,
                                                  .head_dim = config_.head_dim,
                                                  .windows = std::move(windows),
                                                  .sharing = cache_ranks()},
                                   dtype_);
}

Tensor CausalModel::compute_decode(const Batch& batch, KvCaches caches) {
  check_causal_batch(batch, config_);
  const std::int64_t rows = batch.input_ids.size(0), positions = batch.input_ids.size(1);
  check(rows == static_cast<std::int64_t>(caches.size()),
        "decode: {} rows of ids for {} caches, one for each sequence", rows, caches.size());
  check(rows == 1 || positions == 1,
        "decode: {} positions of each of {} sequences: several sequences take one id each",
        positions, rows);
  for (const KvCache* cache : caches) cache->check_room(positions);
  Batch pass = batch;
  if (rows == 1) pass.input_ids = caches[0]->shard_pass(batch.input_ids);
  const Tensor all = hidden(pass, {}, caches);
  const Tensor last = ops::squeeze(rows == 1 ? caches[0]->last_position(all) : all, 1);
  for (KvCache* cache : caches) cache->advance(positions);
  // As losses read them: a logit of 20 that is rounded to bfloat16 is off by 0.06.
  return ops::cast(lm_head().unrounded(last), DType::kFloat32);
}

}  // namespace meshloom::nn
