// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/llama.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "daemon/nn/replicated_like.h"
#include "daemon/tensor/execution_context.h"
#include "daemon/tensor/ops/elementwise.h"

namespace meshloom::nn {
namespace {

Linear::Options projection(const ModelConfig& config, bool bias) {
  return {.bias = bias,
          .weight_init = {.kind = Init::Kind::kNormal,
                          .std = static_cast<float>(config.initializer_range)}};
}

/// The query heads of one key-value head stay together.
FeatureUnits query_units(const ModelConfig& config) {
  return {.unit = config.head_dim, .bundle = config.num_heads / config.num_kv_heads};
}

Linear::Options query(const ModelConfig& config) {
  Linear::Options options = projection(config, config.attention_bias);
  options.out_units = query_units(config);
  return options;
}

Linear::Options key_value(const ModelConfig& config) {
  Linear::Options options = projection(config, config.attention_bias);
  options.out_units = {.unit = config.head_dim,
                       .whole_where_few = config.num_kv_heads != config.num_heads};
  return options;
}

Linear::Options output_projection(const ModelConfig& config) {
  Linear::Options options = projection(config, config.attention_output_bias);
  options.in_units = query_units(config);
  return options;
}

}  // namespace

LlamaAttention::LlamaAttention(ExecutionContext& context, const ModelConfig& config,
                               std::int64_t layer, DType dtype)
    : Module(context),
      config_(config),
      layer_(layer),
      q_(context, config.hidden_size, config.num_heads * config.head_dim, dtype, query(config)),
      k_(context, config.hidden_size, config.num_kv_heads * config.head_dim, dtype,
         key_value(config)),
      v_(context, config.hidden_size, config.num_kv_heads * config.head_dim, dtype,
         key_value(config)),
      o_(context, config.num_heads * config.head_dim, config.hidden_size, dtype,
         output_projection(config)) {
  register_module("q_proj", q_);
  register_module("k_proj", k_);
  register_module("v_proj", v_);
  register_module("o_proj", o_);
  if (!config.qk_norm) return;
  register_module("q_norm", q_norm_.emplace(context, config.head_dim, dtype, config.norm_eps,
                                            config.norms_around_one));
  register_module("k_norm", k_norm_.emplace(context, config.head_dim, dtype, config.norm_eps,
                                            config.norms_around_one));
}

Tensor LlamaAttention::operator()(const Tensor& x, const LlamaPass& pass) const {
  return call(x, [&](const Tensor& in) { return attend(in, pass); });
}

Tensor LlamaAttention::attend(const Tensor& x, const LlamaPass& pass) const {
  const auto rotated = [&](const Linear& projection, const std::optional<RmsNorm>& norm,
                           std::int64_t heads) {
    const Tensor split = split_features(projection(x), heads);
    return ops::rope(heads_first(norm ? (*norm)(split) : split), pass.cos, pass.sin,
                     pass.position_ids, pass.position_offset);
  };
  const Tensor q = rotated(q_, q_norm_, config_.num_heads);
  const KvCache::KeyValue kv = [&] {
    const OutputMemory memory(x.context(), memory_of_keys(x, pass.caches));
    return KvCache::KeyValue{rotated(k_, k_norm_, config_.num_kv_heads),
                             split_heads(v_(x), config_.num_kv_heads)};
  }();
  ops::SdpaOptions options = attention_options(pass.dropout, config_.attention_dropout, layer_,
                                               config_.num_heads, pass.documents);
  if (config_.query_scalar > 0.0) options.scale = 1.0 / std::sqrt(config_.query_scalar);
  options.bias = pass.bias;
  options.is_causal = true;
  options.window_left = config_.window_of(layer_) - 1;
  options.enable_gqa = config_.num_kv_heads != config_.num_heads;
  return o_(merge_heads(cached_attention(q, kv, pass.caches, layer_, options)));
}

LlamaMlp::LlamaMlp(ExecutionContext& context, const ModelConfig& config, DType dtype)
    : Module(context),
      activation_(config.activation),
      gate_(context, config.hidden_size, config.intermediate_size, dtype,
            projection(config, config.mlp_bias)),
      up_(context, config.hidden_size, config.intermediate_size, dtype,
          projection(config, config.mlp_bias)),
      down_(context, config.intermediate_size, config.hidden_size, dtype,
            projection(config, config.mlp_bias)) {
  register_module("gate_proj", gate_);
  register_module("up_proj", up_);
  register_module("down_proj", down_);
}

Tensor LlamaMlp::operator()(const Tensor& x) const {
  return call(x, [&](const Tensor& in) {
    if (activation_ == ActivationKind::kSilu) return down_(ops::swiglu(gate_(in), up_(in)));
    return down_(ops::mul(ops::gelu(gate_(in), activation_ == ActivationKind::kGeluTanh), up_(in)));
  });
}

LlamaBlock::LlamaBlock(ExecutionContext& context, const ModelConfig& config, std::int64_t layer,
                       DType dtype)
    : Module(context),
      attention_(context, config, layer, dtype),
      mlp_(context, config, dtype),
      input_norm_(context, config.hidden_size, dtype, config.norm_eps),
      post_attention_norm_(context, config.hidden_size, dtype, config.norm_eps) {
  register_module("self_attn", attention_);
  register_module("mlp", mlp_);
  register_module("input_layernorm", input_norm_);
  register_module("post_attention_layernorm", post_attention_norm_);
}

ResidualStream LlamaBlock::operator()(const ResidualStream& stream, const LlamaPass& pass) const {
  const auto out = call(std::array{stream.x, stream.residual}, [&](const auto& inputs) {
    const ops::NormedSum in = input_norm_(inputs[0], inputs[1]);
    const ops::NormedSum mid = post_attention_norm_(attention_(in.normed, pass), in.sum);
    return std::array{mlp_(mid.normed), mid.sum};
  });
  return {out[0], out[1]};
}

Llama::Llama(ExecutionContext& context, const ModelConfig& config, DType dtype)
    : CausalModel(context, config, dtype),
      token_embedding_(context, config.vocab_size, config.hidden_size, dtype,
                       static_cast<float>(config.initializer_range),
                       config.pad_token_id.value_or(-1)),
      final_norm_(context, config.hidden_size, dtype, config.norm_eps),
      lm_head_(context, config.hidden_size, config.vocab_size, dtype,
               projection_options(config, token_embedding_)),
      rope_(context, config) {
  register_module("model.embed_tokens", token_embedding_);
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    blocks_.push_back(std::make_unique<LlamaBlock>(context, this->config(), i, dtype));
    register_module(fmt::format("model.layers.{}", i), *blocks_.back());
  }
  register_module("model.norm", final_norm_);
  register_module("lm_head", lm_head_);
}

Llama::Rotation Llama::rotation(const Batch& batch, KvCaches caches) {
  const std::int64_t next = batch.input_ids.size(1);
  if (rope_.depends_on_length() && !caches.empty() && next == 1) {
    // A table of each sequence's own position, since each has a length of its own.
    std::vector<RopePosition> positions;
    std::vector<std::int64_t> row(caches.size());
    for (const KvCache* cache : caches)
      positions.push_back({cache->length(), cache->sequence_length(next)});
    std::iota(row.begin(), row.end(), 0);
    const Tensor ids =
        from_values(context(), {batch.input_ids.size(0), 1}, std::span<const std::int64_t>(row));
    return {rope_.rows(positions), replicated_like(ids, batch.input_ids)};
  }
  // One sequence has positions that follow each other, several have their own.
  const std::int64_t start = caches.size() == 1 ? caches[0]->length() : 0;
  const std::int64_t length = caches.size() == 1 ? caches[0]->sequence_length(next) : next;
  const Tensor positions = !batch.position_ids && caches.size() > 1
                               ? cached_positions(batch.input_ids, caches)
                               : batch.position_ids;
  const std::int64_t most = std::max(next, config().context_length());
  return {rope_.rows(positions ? most : start + next, length), positions, start};
}

Tensor Llama::hidden(const Batch& batch, const ForwardOptions& options, KvCaches caches) {
  const Rotation rotation = this->rotation(batch, caches);
  const LlamaPass pass{.dropout = dropout_state(context(), options),
                       .documents = {batch.document_ids, batch.document_rows},
                       .bias = mask_bias(batch.attention_mask),
                       .position_ids = rotation.position_ids,
                       .position_offset = rotation.position_offset,
                       .cos = rotation.rows.cos,
                       .sin = rotation.rows.sin,
                       .caches = caches};
  ResidualStream stream{{}, token_embedding_(batch.input_ids)};
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block step = [&block = *blocks_[i], pass](const ResidualStream& in) {
      return block(in, pass);
    };
    stream = run_block(step, stream, options.checkpoint_of(i));
  }
  return final_norm_(stream.x, stream.residual).normed;
}

}  // namespace meshloom::nn
