// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/model_shape.h"

#include "kernels/base/error.h"
#include "planner/shard.h"

namespace meshloom::planner {
namespace {

using Parameters = std::vector<ParameterShape>;

constexpr TensorSharding kWhole{};
constexpr TensorSharding kRows{0, 1, 1};
constexpr TensorSharding kColumns{1, 1, 1};

void add_layer_norm(Parameters& list, const std::string& name, std::int64_t width) {
  list.push_back({name + ".weight", {width}, kWhole});
  list.push_back({name + ".bias", {width}, kWhole});
}

/// weight [out, in] and maybe a bias, sharded by outputs (dim 0), by inputs (dim 1) or not at all.
void add_linear(Parameters& list, const std::string& name, std::int64_t out, std::int64_t in,
                bool bias, const TensorSharding& sharding) {
  list.push_back({name + ".weight", {out, in}, sharding});
  if (bias) list.push_back({name + ".bias", {out}, sharding.dim == 0 ? sharding : kWhole});
}

/// The same with the weight as [in, out].
void add_conv1d(Parameters& list, const std::string& name, std::int64_t in, std::int64_t out,
                const TensorSharding& sharding) {
  list.push_back({name + ".weight", {in, out}, sharding});
  list.push_back({name + ".bias",
                  {out},
                  sharding.dim == 1 ? TensorSharding{0, sharding.groups, sharding.unit} : kWhole});
}

ModelParameters gpt2(const ModelShape& m) {
  ModelParameters all;
  all.block_prefix = "transformer.h";
  all.before = {{"transformer.wte.weight", {m.vocab, m.hidden}, kRows},
                {"transformer.wpe.weight", {m.positions, m.hidden}, kWhole}};
  add_layer_norm(all.block, "ln_1", m.hidden);
  add_conv1d(all.block, "attn.c_attn", m.hidden, 3 * m.hidden, {1, 3, m.head_dim});
  add_conv1d(all.block, "attn.c_proj", m.hidden, m.hidden, {0, 1, m.head_dim});
  add_layer_norm(all.block, "ln_2", m.hidden);
  add_conv1d(all.block, "mlp.c_fc", m.hidden, m.intermediate, kColumns);
  add_conv1d(all.block, "mlp.c_proj", m.intermediate, m.hidden, kRows);
  add_layer_norm(all.after, "transformer.ln_f", m.hidden);
  if (!m.tied) add_linear(all.after, "lm_head", m.vocab, m.hidden, false, kRows);
  return all;
}

ModelParameters llama(const ModelShape& m) {
  // Query heads stay with the kv head they share.
  const TensorSharding q{0, 1, m.head_dim, m.heads / m.kv_heads};
  const TensorSharding kv{0, 1, m.head_dim, 1, m.heads != m.kv_heads};
  ModelParameters all;
  all.block_prefix = "model.layers";
  all.before = {{"model.embed_tokens.weight", {m.vocab, m.hidden}, kRows}};
  add_linear(all.block, "self_attn.q_proj", m.q_width(), m.hidden, m.attention_bias, q);
  add_linear(all.block, "self_attn.k_proj", m.kv_width(), m.hidden, m.attention_bias, kv);
  add_linear(all.block, "self_attn.v_proj", m.kv_width(), m.hidden, m.attention_bias, kv);
  add_linear(all.block, "self_attn.o_proj", m.hidden, m.q_width(), m.attention_bias,
             {1, 1, q.unit, q.bundle});
  add_linear(all.block, "mlp.gate_proj", m.intermediate, m.hidden, m.mlp_bias, kRows);
  add_linear(all.block, "mlp.up_proj", m.intermediate, m.hidden, m.mlp_bias, kRows);
  add_linear(all.block, "mlp.down_proj", m.hidden, m.intermediate, m.mlp_bias, kColumns);
  all.block.push_back({"input_layernorm.weight", {m.hidden}, kWhole});
  all.block.push_back({"post_attention_layernorm.weight", {m.hidden}, kWhole});
  all.after = {{"model.norm.weight", {m.hidden}, kWhole}};
  if (!m.tied) add_linear(all.after, "lm_head", m.vocab, m.hidden, false, kRows);
  return all;
}

ModelParameters bert(const ModelShape& m) {
  const TensorSharding heads{0, 1, m.head_dim};
  ModelParameters all;
  all.block_prefix = "bert.encoder.layer";
  all.before = {
      {"cls.predictions.bias", {m.vocab}, kRows},
      {"bert.embeddings.word_embeddings.weight", {m.vocab, m.hidden}, kRows},
      {"bert.embeddings.position_embeddings.weight", {m.positions, m.hidden}, kWhole},
      {"bert.embeddings.token_type_embeddings.weight", {m.token_types, m.hidden}, kWhole}};
  if (!m.tied)
    all.before.insert(all.before.begin(),
                      {"cls.predictions.decoder.weight", {m.vocab, m.hidden}, kRows});
  add_layer_norm(all.before, "bert.embeddings.LayerNorm", m.hidden);
  for (const char* name : {"query", "key", "value"})
    add_linear(all.block, std::string("attention.self.") + name, m.hidden, m.hidden, true, heads);
  add_linear(all.block, "attention.output.dense", m.hidden, m.hidden, true, {1, 1, m.head_dim});
  add_layer_norm(all.block, "attention.output.LayerNorm", m.hidden);
  add_linear(all.block, "intermediate.dense", m.intermediate, m.hidden, true, kRows);
  add_linear(all.block, "output.dense", m.hidden, m.intermediate, true, kColumns);
  add_layer_norm(all.block, "output.LayerNorm", m.hidden);
  add_linear(all.after, "cls.predictions.transform.dense", m.hidden, m.hidden, true, kWhole);
  add_layer_norm(all.after, "cls.predictions.transform.LayerNorm", m.hidden);
  return all;
}

std::int64_t count(const Parameters& list) {
  std::int64_t sum = 0;
  for (const ParameterShape& p : list) sum += numel(p.shape);
  return sum;
}

}  // namespace

void check_model_shape(const ModelShape& m) {
  const auto positive = [](const char* name, std::int64_t value) {
    if (value < 1)
      throw InvalidArgument(fmt::format("model: {} is {}, expected at least 1", name, value));
  };
  positive("layers", m.layers);
  positive("hidden", m.hidden);
  positive("heads", m.heads);
  positive("kv_heads", m.kv_heads);
  positive("head_dim", m.head_dim);
  positive("intermediate", m.intermediate);
  positive("vocab", m.vocab);
  positive("positions", m.positions);
  if (m.heads % m.kv_heads != 0)
    throw InvalidArgument(
        fmt::format("model: {} kv_heads do not divide {} heads", m.kv_heads, m.heads));
  if (m.kind != ModelKind::kLlama && (m.kv_heads != m.heads || m.q_width() != m.hidden))
    throw InvalidArgument(
        fmt::format("model: {} heads of {} with {} kv_heads do not make up the hidden size {}, as "
                    "this kind's do",
                    m.heads, m.head_dim, m.kv_heads, m.hidden));
}

ModelParameters model_parameters(const ModelShape& model) {
  switch (model.kind) {
    case ModelKind::kGpt2: return gpt2(model);
    case ModelKind::kLlama: return llama(model);
    case ModelKind::kBert: return bert(model);
  }
  throw InternalError("model_parameters: unknown kind of model");
}

std::int64_t parameter_count(const ModelShape& model) {
  const ModelParameters all = model_parameters(model);
  return count(all.before) + model.layers * count(all.block) + count(all.after);
}

std::int64_t shard_size(std::int64_t size, const TensorSharding& sharding, std::int64_t parts,
                        std::int64_t index) {
  const std::int64_t stretch = size / sharding.groups;
  const std::int64_t units = (stretch + sharding.unit - 1) / sharding.unit;
  const ShardRange range = shard_range(units, parts, index);
  const auto element = [&](std::int64_t unit) { return std::min(unit * sharding.unit, stretch); };
  return sharding.groups * (element(range.end) - element(range.begin));
}

TensorSharding settle(const TensorSharding& sharding, std::int64_t size, std::int64_t parts) {
  if (sharding.dim < 0) return sharding;
  const std::int64_t units = size / (sharding.groups * sharding.unit);
  if (sharding.whole_where_few && units < parts) return {.whole_where_few = true};
  const bool bundled = units % sharding.bundle == 0 && units / sharding.bundle >= parts;
  return {sharding.dim, sharding.groups, sharding.unit * (bundled ? sharding.bundle : 1)};
}

Shape tensor_parallel_shape(const ParameterShape& parameter, std::int64_t parts,
                            std::int64_t index) {
  Shape shape = parameter.shape;
  if (parameter.sharding.dim < 0) return shape;
  const TensorSharding sharding = settle(parameter.sharding, shape[parameter.sharding.dim], parts);
  if (sharding.dim >= 0)
    shape[sharding.dim] = shard_size(shape[sharding.dim], sharding, parts, index);
  return shape;
}

}  // namespace meshloom::planner
