// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/gpt2.h"

#include <fmt/format.h>

#include <cmath>

#include "daemon/tensor/execution_context.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/shape.h"

namespace meshloom::nn {
namespace {

Linear::Options conv1d(double std) {
  return {.weight_is_in_out = true,
          .weight_init = {.kind = Init::Kind::kNormal, .std = static_cast<float>(std)}};
}

/// Projections into the residual stream start smaller, so that its variance does not grow with
/// depth.
Linear::Options residual_conv1d(const ModelConfig& config) {
  return conv1d(config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.num_layers)));
}

Linear::Options query_key_value(const ModelConfig& config) {
  Linear::Options options = conv1d(config.initializer_range);
  options.out_units = {.groups = 3, .unit = config.head_dim};
  return options;
}

Linear::Options attention_output(const ModelConfig& config) {
  Linear::Options options = residual_conv1d(config);
  options.in_units = {.unit = config.head_dim};
  return options;
}

}  // namespace

Gpt2Attention::Gpt2Attention(ExecutionContext& context, const ModelConfig& config,
                             std::int64_t layer, DType dtype)
    : Module(context),
      config_(config),
      layer_(layer),
      in_(context, config.hidden_size, 3 * config.hidden_size, dtype, query_key_value(config)),
      out_(context, config.hidden_size, config.hidden_size, dtype, attention_output(config)) {
  register_module("c_attn", in_);
  register_module("c_proj", out_);
}

Tensor Gpt2Attention::operator()(const Tensor& x, const Gpt2Pass& pass) const {
  return call(x, [&](const Tensor& in) { return attend(in, pass); });
}

Tensor Gpt2Attention::attend(const Tensor& x, const Gpt2Pass& pass) const {
  const std::vector<Tensor> qkv = [&] {
    const OutputMemory memory(x.context(), memory_of_keys(x, pass.caches));
    return ops::split(in_(x), config_.hidden_size, -1);
  }();
  const Tensor q = split_heads(qkv[0], config_.num_heads);
  const KvCache::KeyValue kv{split_heads(qkv[1], config_.num_heads),
                             split_heads(qkv[2], config_.num_heads)};
  ops::SdpaOptions options = attention_options(pass.dropout, config_.attention_dropout, layer_,
                                               config_.num_heads, pass.documents);
  options.bias = pass.bias;
  options.is_causal = true;
  return out_(merge_heads(cached_attention(q, kv, pass.caches, layer_, options)));
}

Gpt2Mlp::Gpt2Mlp(ExecutionContext& context, const ModelConfig& config, DType dtype)
    : Module(context),
      activation_(config.activation),
      in_(context, config.hidden_size, config.intermediate_size, dtype,
          conv1d(config.initializer_range)),
      out_(context, config.intermediate_size, config.hidden_size, dtype, residual_conv1d(config)) {
  register_module("c_fc", in_);
  register_module("c_proj", out_);
}

Tensor Gpt2Mlp::operator()(const Tensor& x) const {
  return call(x, [&](const Tensor& in) { return activated_linear(out_, in_(in), activation_); });
}

Gpt2Block::Gpt2Block(ExecutionContext& context, const ModelConfig& config, std::int64_t layer,
                     DType dtype)
    : Module(context),
      config_(config),
      layer_(layer),
      ln_1_(context, config.hidden_size, dtype, config.norm_eps),
      attention_(context, config, layer, dtype),
      ln_2_(context, config.hidden_size, dtype, config.norm_eps),
      mlp_(context, config, dtype) {
  register_module("ln_1", ln_1_);
  register_module("attn", attention_);
  register_module("ln_2", ln_2_);
  register_module("mlp", mlp_);
}

ResidualStream Gpt2Block::operator()(const ResidualStream& stream, const Gpt2Pass& pass) const {
  const auto out = call(std::array{stream.x, stream.residual}, [&](const auto& inputs) {
    const ops::NormedSum in = ln_1_(inputs[0], inputs[1]);
    const Tensor attended = dropout(attention_(in.normed, pass), config_.residual_dropout,
                                    pass.dropout, layer_, DropoutSite::kAttentionOutput);
    const ops::NormedSum mid = ln_2_(attended, in.sum);
    return std::array{dropout(mlp_(mid.normed), config_.residual_dropout, pass.dropout, layer_,
                              DropoutSite::kMlpOutput),
                      mid.sum};
  });
  return {out[0], out[1]};
}

Gpt2::Gpt2(ExecutionContext& context, const ModelConfig& config, DType dtype)
    : CausalModel(context, config, dtype),
      token_embedding_(context, config.vocab_size, config.hidden_size, dtype,
                       static_cast<float>(config.initializer_range)),
      position_embedding_(context, config.max_position_embeddings, config.hidden_size, dtype,
                          static_cast<float>(config.initializer_range)),
      positions_(context, config.max_position_embeddings),
      final_norm_(context, config.hidden_size, dtype, config.norm_eps),
      lm_head_(context, config.hidden_size, config.vocab_size, dtype,
               projection_options(config, token_embedding_)) {
  register_module("transformer.wte", token_embedding_);
  register_module("transformer.wpe", position_embedding_);
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    blocks_.push_back(std::make_unique<Gpt2Block>(context, this->config(), i, dtype));
    register_module(fmt::format("transformer.h.{}", i), *blocks_.back());
  }
  register_module("transformer.ln_f", final_norm_);
  register_module("lm_head", lm_head_);
}

Tensor Gpt2::hidden(const Batch& batch, const ForwardOptions& options, KvCaches caches) {
  const Gpt2Pass pass{dropout_state(context(), options),
                      {batch.document_ids, batch.document_rows},
                      mask_bias(batch.attention_mask),
                      caches};
  Tensor positions = batch.position_ids;
  if (!positions)
    positions = caches.size() > 1
                    ? cached_positions(batch.input_ids, caches)
                    : positions_.beside(batch.input_ids, caches.empty() ? 0 : caches[0]->length());
  const Tensor embedded =
      ops::add(token_embedding_(batch.input_ids), position_embedding_(positions));
  ResidualStream stream{
      {}, dropout(embedded, config().embedding_dropout, pass.dropout, 0, DropoutSite::kEmbedding)};
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block step = [&block = *blocks_[i], pass](const ResidualStream& in) {
      return block(in, pass);
    };
    stream = run_block(step, stream, options.checkpoint_of(i));
  }
  return final_norm_(stream.x, stream.residual).normed;
}

}  // namespace meshloom::nn
