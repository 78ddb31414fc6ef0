// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/model_shape.h"

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

struct LinearShape {
  std::int64_t in, out;
  bool bias = true;
  bool weight_is_in_out = false;
  FeatureUnits in_units = {}, out_units = {};
};

ModuleShape linear(const std::string& name, const LinearShape& l) {
  ModuleShape module{.name = name, .positionwise = true};
  module.parameters.push_back(
      {"weight", l.weight_is_in_out ? Shape{l.in, l.out} : Shape{l.out, l.in}});
  FeatureSharding columns{.shards_output = true}, rows{.shards_input = true};
  columns.parameters.push_back({"weight", l.weight_is_in_out ? 1 : 0, l.out_units});
  rows.parameters.push_back({"weight", l.weight_is_in_out ? 0 : 1, l.in_units});
  if (l.bias) {
    module.parameters.push_back({"bias", {l.out}});
    columns.parameters.push_back({"bias", 0, l.out_units});
    rows.parameters.push_back({"bias"});
  }
  module.columns = std::move(columns);
  module.rows = std::move(rows);
  return module;
}

ModuleShape embedding(const std::string& name, std::int64_t count, std::int64_t width) {
  return {.name = name,
          .parameters = {{"weight", {count, width}}},
          .columns = FeatureSharding{.parameters = {{"weight", 1}}, .shards_output = true},
          .rows = FeatureSharding{.parameters = {{"weight", 0}}},
          .positionwise = true};
}

ModuleShape norm(const std::string& name, std::int64_t width, bool bias) {
  ModuleShape module{.name = name,
                     .parameters = {{"weight", {width}}},
                     .positionwise = true,
                     .inputs = {"input", "residual"}};
  if (bias) module.parameters.push_back({"bias", {width}});
  return module;
}

/// The weight of its own has this name; "" if it is the embedding's.
ModuleShape output_projection(const std::string& name, const ModelShape& m,
                              const std::string& weight, bool bias) {
  ModuleShape module{.name = name, .columns = FeatureSharding{.shards_output = true}};
  const auto add = [&](const std::string& parameter, const Shape& shape) {
    module.parameters.push_back({parameter, shape});
    module.columns->parameters.push_back({parameter, 0});
  };
  if (!weight.empty()) add(weight, {m.vocab, m.hidden});
  if (bias) add("bias", {m.vocab});
  return module;
}

ModuleShape container(const std::string& name, std::vector<std::string> inputs = {"input"}) {
  return {.name = name, .inputs = std::move(inputs)};
}

ModelModules gpt2(const ModelShape& m) {
  const std::int64_t c = m.hidden, inner = m.intermediate;
  const auto conv1d = [](const char* name, LinearShape l) {
    l.weight_is_in_out = true;
    return linear(name, l);
  };
  return {"transformer.h",
          {embedding("transformer.wte", m.vocab, c), embedding("transformer.wpe", m.positions, c)},
          {container("", {"input", "residual"}), norm("ln_1", c, true), container("attn"),
           conv1d("attn.c_attn", {.in = c, .out = 3 * c, .out_units = {3, m.head_dim}}),
           conv1d("attn.c_proj", {.in = c, .out = c, .in_units = {1, m.head_dim}}),
           norm("ln_2", c, true), container("mlp"), conv1d("mlp.c_fc", {.in = c, .out = inner}),
           conv1d("mlp.c_proj", {.in = inner, .out = c})},
          {norm("transformer.ln_f", c, true),
           output_projection("lm_head", m, m.tied ? "" : "weight", false)}};
}

ModelModules llama(const ModelShape& m) {
  const std::int64_t c = m.hidden, inner = m.intermediate;
  // Query heads stay with the key-value head that they share.
  const FeatureUnits q{1, m.head_dim, m.heads / m.kv_heads};
  const FeatureUnits kv{1, m.head_dim, 1, m.heads != m.kv_heads};
  const bool bias = m.attention_bias;
  std::vector<ModuleShape> block = {
      container("", {"input", "residual"}),
      container("self_attn"),
      linear("self_attn.q_proj", {.in = c, .out = m.q_width(), .bias = bias, .out_units = q}),
      linear("self_attn.k_proj", {.in = c, .out = m.kv_width(), .bias = bias, .out_units = kv}),
      linear("self_attn.v_proj", {.in = c, .out = m.kv_width(), .bias = bias, .out_units = kv}),
      linear("self_attn.o_proj",
             {.in = m.q_width(), .out = c, .bias = m.attention_output_bias, .in_units = q})};
  if (m.qk_norm)
    for (const char* name : {"self_attn.q_norm", "self_attn.k_norm"})
      block.push_back(norm(name, m.head_dim, false));
  const auto mlp = [&](const char* name, std::int64_t in, std::int64_t out) {
    return linear(name, {.in = in, .out = out, .bias = m.mlp_bias});
  };
  for (ModuleShape& module :
       std::vector{container("mlp"), mlp("mlp.gate_proj", c, inner), mlp("mlp.up_proj", c, inner),
                   mlp("mlp.down_proj", inner, c), norm("input_layernorm", c, false),
                   norm("post_attention_layernorm", c, false)})
    block.push_back(std::move(module));
  return {"model.layers",
          {embedding("model.embed_tokens", m.vocab, c)},
          std::move(block),
          {norm("model.norm", c, false),
           output_projection("lm_head", m, m.tied ? "" : "weight", false)}};
}

ModelModules bert(const ModelShape& m) {
  const std::int64_t c = m.hidden;
  const FeatureUnits heads{1, m.head_dim};
  const auto projection = [&](const char* name) {
    return linear(name, {.in = c, .out = c, .out_units = heads});
  };
  return {
      "bert.encoder.layer",
      {output_projection("cls.predictions", m, m.tied ? "" : "decoder.weight", true),
       embedding("bert.embeddings.word_embeddings", m.vocab, c),
       embedding("bert.embeddings.position_embeddings", m.positions, c),
       embedding("bert.embeddings.token_type_embeddings", m.token_types, c),
       norm("bert.embeddings.LayerNorm", c, true)},
      {container(""), container("attention.self"), projection("attention.self.query"),
       projection("attention.self.key"), projection("attention.self.value"),
       linear("attention.output.dense", {.in = c, .out = c, .in_units = heads}),
       norm("attention.output.LayerNorm", c, true),
       linear("intermediate.dense", {.in = c, .out = m.intermediate}),
       linear("output.dense", {.in = m.intermediate, .out = c}), norm("output.LayerNorm", c, true)},
      {linear("cls.predictions.transform.dense", {.in = c, .out = c}),
       norm("cls.predictions.transform.LayerNorm", c, true)}};
}

std::int64_t count(const std::vector<ModuleShape>& modules) {
  std::int64_t sum = 0;
  for (const ModuleShape& module : modules)
    for (const ParameterShape& p : module.parameters) sum += numel(p.shape);
  return sum;
}

}  // namespace

double seen_positions(const ModelShape& model, std::int64_t sequence) {
  const auto length = static_cast<double>(sequence);
  if (!model.causal()) return length;
  if (model.windowed_layers == 0 || model.window >= sequence) return 0.5 * length;
  const auto window = static_cast<double>(model.window);
  const double windowed =
      static_cast<double>(model.windowed_layers) / static_cast<double>(model.layers);
  return windowed * (window - 0.5 * window * window / length) + (1.0 - windowed) * 0.5 * length;
}

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
  if (m.windowed_layers > 0) positive("window", m.window);
  if (m.windowed_layers < 0 || m.windowed_layers > m.layers)
    throw InvalidArgument(
        fmt::format("model: {} of {} layers have windows", m.windowed_layers, m.layers));
  if (m.heads % m.kv_heads != 0)
    throw InvalidArgument(
        fmt::format("model: {} kv_heads do not divide {} heads", m.kv_heads, m.heads));
  if (m.kind != Architecture::kLlama && (m.kv_heads != m.heads || m.q_width() != m.hidden))
    throw InvalidArgument(
        fmt::format("model: {} heads of {} with {} kv_heads do not make up the hidden size {}, as "
                    "this kind's do",
                    m.heads, m.head_dim, m.kv_heads, m.hidden));
}

ModelModules model_modules(const ModelShape& model) {
  switch (model.kind) {
    case Architecture::kGpt2: return gpt2(model);
    case Architecture::kLlama: return llama(model);
    case Architecture::kBert: return bert(model);
  }
  throw InternalError("model_modules: unknown architecture");
}

std::string full_name(const ModelModules& modules, const std::string& module, std::int64_t layer) {
  if (layer < 0) return module;
  const std::string block = fmt::format("{}.{}", modules.block_prefix, layer);
  return module.empty() ? block : block + "." + module;
}

std::vector<std::string> parameter_names(const ModelShape& model) {
  const ModelModules all = model_modules(model);
  std::vector<std::string> names;
  const auto add = [&](const std::vector<ModuleShape>& modules, std::int64_t layer) {
    for (const ModuleShape& module : modules)
      for (const ParameterShape& p : module.parameters)
        names.push_back(full_name(all, module.name, layer) + "." + p.name);
  };
  add(all.before, -1);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) add(all.block, layer);
  add(all.after, -1);
  return names;
}

std::int64_t parameter_count(const ModelShape& model) {
  const ModelModules all = model_modules(model);
  return count(all.before) + model.layers * count(all.block) + count(all.after);
}

}  // namespace meshloom::planner
