// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/bert.h"

#include <fmt/format.h>

#include "daemon/nn/replicated_like.h"
#include "daemon/tensor/autograd/checkpoint.h"
#include "daemon/tensor/execution_context.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::nn {
namespace {

Linear::Options dense(const ModelConfig& config) {
  return {.weight_init = {.kind = Init::Kind::kNormal,
                          .std = static_cast<float>(config.initializer_range)}};
}

Linear::Options by_heads_out(const ModelConfig& config) {
  Linear::Options options = dense(config);
  options.out_units.unit = config.head_dim;
  return options;
}

Linear::Options by_heads_in(const ModelConfig& config) {
  Linear::Options options = dense(config);
  options.in_units.unit = config.head_dim;
  return options;
}

OutputProjection::Options output_options(const ModelConfig& config, const Embedding& words) {
  if (config.tie_word_embeddings) return {.tied = &words, .bias = true};
  return {.weight = dense(config).weight_init, .bias = true, .weight_name = "decoder.weight"};
}

}  // namespace

BertSelfAttention::BertSelfAttention(ExecutionContext& context, const ModelConfig& config,
                                     std::int64_t layer, DType dtype)
    : Module(context),
      config_(config),
      layer_(layer),
      query_(context, config.hidden_size, config.hidden_size, dtype, by_heads_out(config)),
      key_(context, config.hidden_size, config.hidden_size, dtype, by_heads_out(config)),
      value_(context, config.hidden_size, config.hidden_size, dtype, by_heads_out(config)) {
  register_module("query", query_);
  register_module("key", key_);
  register_module("value", value_);
}

Tensor BertSelfAttention::operator()(const Tensor& x, const BertPass& pass) const {
  return call(x, [&](const Tensor& in) { return attend(in, pass); });
}

Tensor BertSelfAttention::attend(const Tensor& x, const BertPass& pass) const {
  const auto heads = [&](const Linear& projection) {
    return split_heads(projection(x), config_.num_heads);
  };
  ops::SdpaOptions options = attention_options(pass.dropout, config_.attention_dropout, layer_,
                                               config_.num_heads, pass.documents);
  options.bias = pass.bias;
  const Tensor q = heads(query_);
  const auto [k, v] = [&] {
    const OutputMemory memory(x.context(), memory_of_keys(x));
    return std::pair(heads(key_), heads(value_));
  }();
  return merge_heads(ops::scaled_dot_product_attention(q, k, v, options).o);
}

BertBlock::BertBlock(ExecutionContext& context, const ModelConfig& config, std::int64_t layer,
                     DType dtype)
    : Module(context),
      config_(config),
      layer_(layer),
      attention_(context, config, layer, dtype),
      attention_out_(context, config.hidden_size, config.hidden_size, dtype, by_heads_in(config)),
      attention_norm_(context, config.hidden_size, dtype, config.norm_eps),
      mlp_in_(context, config.hidden_size, config.intermediate_size, dtype, dense(config)),
      mlp_out_(context, config.intermediate_size, config.hidden_size, dtype, dense(config)),
      mlp_norm_(context, config.hidden_size, dtype, config.norm_eps) {
  register_module("attention.self", attention_);
  register_module("attention.output.dense", attention_out_);
  register_module("attention.output.LayerNorm", attention_norm_);
  register_module("intermediate.dense", mlp_in_);
  register_module("output.dense", mlp_out_);
  register_module("output.LayerNorm", mlp_norm_);
}

Tensor BertBlock::operator()(const Tensor& x, const BertPass& pass) const {
  return call(x, [&](const Tensor& in) {
    const Tensor attended = dropout(attention_out_(attention_(in, pass)), config_.residual_dropout,
                                    pass.dropout, layer_, DropoutSite::kAttentionOutput);
    const Tensor mid = attention_norm_(attended, in).normed;
    const Tensor mlp =
        dropout(activated_linear(mlp_out_, mlp_in_(mid), config_.activation),
                config_.residual_dropout, pass.dropout, layer_, DropoutSite::kMlpOutput);
    return mlp_norm_(mlp, mid).normed;
  });
}

Bert::Bert(ExecutionContext& context, const ModelConfig& config, DType dtype)
    : Model(context),
      config_(config),
      word_embedding_(context, config.vocab_size, config.hidden_size, dtype,
                      static_cast<float>(config.initializer_range),
                      config.pad_token_id.value_or(-1)),
      position_embedding_(context, config.max_position_embeddings, config.hidden_size, dtype,
                          static_cast<float>(config.initializer_range)),
      type_embedding_(context, config.type_vocab_size, config.hidden_size, dtype,
                      static_cast<float>(config.initializer_range)),
      positions_(context, config.max_position_embeddings),
      embedding_norm_(context, config.hidden_size, dtype, config.norm_eps),
      predictions_(context, config.hidden_size, config.vocab_size, dtype,
                   output_options(config, word_embedding_)),
      transform_(context, config.hidden_size, config.hidden_size, dtype, dense(config)),
      transform_norm_(context, config.hidden_size, dtype, config.norm_eps) {
  register_module("bert.embeddings.word_embeddings", word_embedding_);
  register_module("bert.embeddings.position_embeddings", position_embedding_);
  register_module("bert.embeddings.token_type_embeddings", type_embedding_);
  register_module("bert.embeddings.LayerNorm", embedding_norm_);
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    blocks_.push_back(std::make_unique<BertBlock>(context, config_, i, dtype));
    register_module(fmt::format("bert.encoder.layer.{}", i), *blocks_.back());
  }
  register_module("cls.predictions", predictions_);
  register_module("cls.predictions.transform.dense", transform_);
  register_module("cls.predictions.transform.LayerNorm", transform_norm_);
}

Tensor Bert::embed(const Batch& batch, const DropoutState& state) const {
  const std::int64_t length = batch.input_ids.size(1);
  const Tensor types =
      batch.token_type_ids
          ? batch.token_type_ids
          : replicated_like(zeros(context(), {1, length}, DType::kInt64), batch.input_ids);
  const Tensor positions =
      batch.position_ids ? batch.position_ids : positions_.beside(batch.input_ids, 0);
  const Tensor words = ops::add(word_embedding_(batch.input_ids), type_embedding_(types));
  const Tensor embedded = embedding_norm_(ops::add(words, position_embedding_(positions)));
  return dropout(embedded, config_.embedding_dropout, state, 0, DropoutSite::kEmbedding);
}

Tensor Bert::hidden(const Batch& batch, const ForwardOptions& options) const {
  const BertPass pass{dropout_state(context(), options),
                      {batch.document_ids, batch.document_rows},
                      mask_bias(batch.attention_mask)};
  Tensor x = embed(batch, pass.dropout);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    context().poll();
    const auto step = [&block = *blocks_[i], pass](const Tensor& in) { return block(in, pass); };
    const ActivationCheckpoint mode = options.checkpoint_of(i);
    const bool selective = mode == ActivationCheckpoint::kSelective;
    x = mode == ActivationCheckpoint::kNone
            ? step(x)
            : autograd::checkpoint(step, x, {.keep_attention = selective});
  }
  return transform_norm_(activate(transform_(x), config_.activation));
}

Tensor Bert::compute_loss(const Batch& batch, float grad_scale, const ForwardOptions& options) {
  check_batch(batch, config_.max_position_embeddings);
  check(batch.labels.defined(), "loss: labels are not given");
  return predictions_.loss(hidden(batch, options), batch.labels, grad_scale);
}

Tensor Bert::compute_hidden(const Batch& batch, const ForwardOptions& options) {
  check_batch(batch, config_.max_position_embeddings);
  return hidden(batch, options);
}

std::unique_ptr<KvCache> Bert::make_cache(std::int64_t) {
  throw Unimplemented("BERT is no causal model: it does not generate", "NOT_CAUSAL");
}

Tensor Bert::compute_decode(const Batch&, KvCaches) {
  throw Unimplemented("BERT is no causal model: it does not generate", "NOT_CAUSAL");
}

}  // namespace meshloom::nn
