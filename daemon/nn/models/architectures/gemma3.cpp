// SPDX-License-Identifier: Apache-2.0
// The text model of Gemma 3, with what config.json and Hugging Face files say of it. Parameters are
// named as transformers' Gemma3ForCausalLM.
//
// Source: Gemma Team, "Gemma 3 Technical Report", 2025.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "daemon/nn/models/architectures/architecture.h"
#include "daemon/nn/models/architectures/decoder_parts.h"
#include "daemon/nn/models/config_activation.h"
#include "daemon/nn/models/llama.h"
#include "daemon/nn/models/rope_config.h"
#include "daemon/tensor/ops/elementwise.h"
#include "kernels/base/half.h"
#include "planner/limits.h"

namespace meshloom::nn {
namespace {

// --- The model

/// What every block of one forward pass is told: the two kinds of layers rotate differently.
struct GemmaPass {
  LlamaPass whole, windowed;
};

/// x + norm(attention(norm(x))), then x + norm(mlp(norm(x))).
class GemmaBlock : public Module {
 public:
  GemmaBlock(ExecutionContext& context, const ModelConfig& config, std::int64_t layer, DType dtype)
      : Module(context),
        attention_(context, config, layer, dtype),
        mlp_(context, config, dtype),
        windowed_(config.window_of(layer) > 0),
        input_norm_(context, config.hidden_size, dtype, config.norm_eps, config.norms_around_one),
        post_attention_norm_(context, config.hidden_size, dtype, config.norm_eps,
                             config.norms_around_one),
        pre_mlp_norm_(context, config.hidden_size, dtype, config.norm_eps, config.norms_around_one),
        post_mlp_norm_(context, config.hidden_size, dtype, config.norm_eps,
                       config.norms_around_one) {
    register_module("self_attn", attention_);
    register_module("mlp", mlp_);
    register_module("input_layernorm", input_norm_);
    register_module("post_attention_layernorm", post_attention_norm_);
    register_module("pre_feedforward_layernorm", pre_mlp_norm_);
    register_module("post_feedforward_layernorm", post_mlp_norm_);
  }

  ResidualStream operator()(const ResidualStream& stream, const GemmaPass& pass) const {
    const auto out = call(std::array{stream.x, stream.residual}, [&](const auto& inputs) {
      const ops::NormedSum in = input_norm_(inputs[0], inputs[1]);
      const Tensor attended =
          post_attention_norm_(attention_(in.normed, windowed_ ? pass.windowed : pass.whole));
      const ops::NormedSum mid = pre_mlp_norm_(attended, in.sum);
      return std::array{post_mlp_norm_(mlp_(mid.normed)), mid.sum};
    });
    return {out[0], out[1]};
  }
  std::span<const std::string_view> input_names() const override { return kStreamInputs; }

 private:
  LlamaAttention attention_;
  LlamaMlp mlp_;
  bool windowed_;
  RmsNorm input_norm_, post_attention_norm_, pre_mlp_norm_, post_mlp_norm_;
};

/// Layers with a window have a rotation of their own, without scaling.
ModelConfig windowed_rope(ModelConfig config) {
  config.rope_theta = config.local_rope_theta;
  config.rope_scaling.reset();
  return config;
}

class Gemma3 : public CausalModel {
 public:
  Gemma3(ExecutionContext& context, const ModelConfig& config, DType dtype)
      : CausalModel(context, config, dtype),
        token_embedding_(context, config.vocab_size, config.hidden_size, dtype,
                         static_cast<float>(config.initializer_range),
                         config.pad_token_id.value_or(-1)),
        final_norm_(context, config.hidden_size, dtype, config.norm_eps, config.norms_around_one),
        lm_head_(context, config.hidden_size, config.vocab_size, dtype,
                 projection_options(config, token_embedding_)),
        rope_(context, config),
        windowed_rope_(context, windowed_rope(config)) {
    register_module("model.embed_tokens", token_embedding_);
    for (std::int64_t i = 0; i < config.num_layers; ++i) {
      blocks_.push_back(std::make_unique<GemmaBlock>(context, this->config(), i, dtype));
      register_module(fmt::format("model.layers.{}", i), *blocks_.back());
    }
    register_module("model.norm", final_norm_);
    register_module("lm_head", lm_head_);
  }

 protected:
  Tensor hidden(const Batch& batch, const ForwardOptions& options, KvCaches caches) override {
    const GemmaPass pass = make_pass(batch, options, caches);
    ResidualStream stream{{}, ops::mul(token_embedding_(batch.input_ids), embedding_scale())};
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const Block step = [&block = *blocks_[i], pass](const ResidualStream& in) {
        return block(in, pass);
      };
      stream = run_block(step, stream, options.checkpoint_of(i));
    }
    return final_norm_(stream.x, stream.residual).normed;
  }
  const OutputProjection& lm_head() const override { return lm_head_; }

 private:
  /// The root of the channels, of the parameters' dtype as in transformers.
  double embedding_scale() const {
    const double root = std::sqrt(static_cast<double>(config().hidden_size));
    if (dtype() == DType::kBFloat16)
      return static_cast<double>(static_cast<float>(bfloat16(static_cast<float>(root))));
    return dtype() == DType::kFloat32 ? static_cast<double>(static_cast<float>(root)) : root;
  }

  /// One sequence has positions that follow each other, several have their own.
  GemmaPass make_pass(const Batch& batch, const ForwardOptions& options, KvCaches caches) {
    const std::int64_t next = batch.input_ids.size(1);
    const std::int64_t start = caches.size() == 1 ? caches[0]->length() : 0;
    const Tensor positions = !batch.position_ids && caches.size() > 1
                                 ? cached_positions(batch.input_ids, caches)
                                 : batch.position_ids;
    std::int64_t count = positions ? std::max(next, config().context_length()) : start + next;
    if (caches.size() > 1) {
      count = next;
      for (const KvCache* cache : caches) count = std::max(count, cache->length() + next);
    }
    const RopeRows whole = rope_.rows(count, count), windowed = windowed_rope_.rows(count, count);
    GemmaPass pass{.whole = {.dropout = dropout_state(context(), options),
                             .documents = {batch.document_ids, batch.document_rows},
                             .bias = mask_bias(batch.attention_mask),
                             .position_ids = positions,
                             .position_offset = start,
                             .cos = whole.cos,
                             .sin = whole.sin,
                             .caches = caches},
                   .windowed = {}};
    pass.windowed = pass.whole;
    pass.windowed.cos = windowed.cos;
    pass.windowed.sin = windowed.sin;
    return pass;
  }

  Embedding token_embedding_;
  std::vector<std::unique_ptr<GemmaBlock>> blocks_;
  RmsNorm final_norm_;
  OutputProjection lm_head_;
  RopeTable rope_, windowed_rope_;
};

// --- Its config.json

void parse_gemma_windows(const JsonReader& json, ModelConfig& config) {
  const std::int64_t window =
      json.size("sliding_window", 4096, std::numeric_limits<std::int32_t>::max());
  const std::int64_t pattern = json.size("sliding_window_pattern", 6);
  for (std::int64_t i = 0; i < config.num_layers; ++i)
    config.windowed_layers.push_back((i + 1) % pattern != 0);
  if (json.has("layer_types")) config.windowed_layers = parse_layer_types(json, config.num_layers);
  if (std::find(config.windowed_layers.begin(), config.windowed_layers.end(), true) !=
      config.windowed_layers.end())
    config.sliding_window = window;
}

/// transformers 5 has settings of their own for both kinds of layers in rope_parameters; 4 has
/// rope_theta and rope_scaling of the layers without a window, and rope_local_base_freq of the
/// others.
void parse_gemma_rope(const JsonReader& json, ModelConfig& config) {
  nlohmann::json whole = {{"rope_theta", json.number("rope_theta", 1e6)}};
  config.local_rope_theta = json.number("rope_local_base_freq", 10000.0);
  if (json.has("rope_scaling")) whole["rope_scaling"] = json.at("rope_scaling");
  if (json.has("rope_parameters")) {
    const nlohmann::json& both = json.at("rope_parameters");
    if (!both.is_object()) json.fail("rope_parameters", "is not an object");
    const JsonReader layers(both, "rope_parameters.");
    if (!layers.has(kWholeAttention)) layers.fail(kWholeAttention, "is missing");
    whole["rope_parameters"] = layers.at(kWholeAttention);
    if (layers.has(kWindowedAttention)) {
      if (!layers.at(kWindowedAttention).is_object())
        layers.fail(kWindowedAttention, "is not an object");
      const JsonReader windowed(layers.at(kWindowedAttention),
                                "rope_parameters.sliding_attention.");
      windowed.expect("rope_type", "default");
      config.local_rope_theta = windowed.number("rope_theta", config.local_rope_theta);
    }
  }
  if (!(config.local_rope_theta > 0.0)) json.fail("rope_local_base_freq", "is not positive");
  parse_rope(JsonReader(whole), config);
  if (config.rope_scaling && config.rope_scaling->type == RopeType::kDynamic)
    json.refuse("rope_scaling", "is 'dynamic'; a Gemma has default, linear, yarn and llama3");
}

ModelConfig parse_gemma3(const JsonReader& json) {
  json.expect("attn_logit_softcapping", nullptr);
  json.expect("final_logit_softcapping", nullptr);
  json.expect("use_bidirectional_attention", false);
  ModelConfig config;
  config.architecture = Architecture::kGemma3;
  config.vocab_size = json.size("vocab_size", 262208, planner::kMostVocabulary);
  config.hidden_size = json.size("hidden_size", 2304, planner::kMostChannels);
  config.intermediate_size = json.size("intermediate_size", 9216, planner::kMostIntermediate);
  config.num_layers = json.size("num_hidden_layers", 26, planner::kMostLayers);
  config.num_heads = json.size("num_attention_heads", 8, planner::kMostHeads);
  config.num_kv_heads = json.size("num_key_value_heads", 4, planner::kMostHeads);
  config.head_dim = json.size("head_dim", 256, planner::kMostHeadDim);
  if (config.head_dim % 2 != 0) json.fail("head_dim", "is odd: rotary embedding needs pairs");
  config.max_position_embeddings =
      json.size("max_position_embeddings", 131072, planner::kMostPositions);
  config.activation = parse_activation(json, "hidden_activation", "gelu_pytorch_tanh");
  if (config.activation != ActivationKind::kGelu && config.activation != ActivationKind::kGeluTanh)
    json.refuse("hidden_activation", "is no gelu, which a Gemma has alone");
  config.norm_eps = json.given_number("rms_norm_eps", 1e-6);
  config.tie_word_embeddings = json.boolean("tie_word_embeddings", true);
  config.attention_bias = config.attention_output_bias = json.boolean("attention_bias", false);
  config.attention_dropout = json.probability("attention_dropout", 0.0);
  config.qk_norm = config.norms_around_one = true;
  config.query_scalar = json.given_number("query_pre_attn_scalar", 256.0);
  if (!(config.query_scalar > 0.0)) json.fail("query_pre_attn_scalar", "is not positive");
  config.pad_token_id = 0;
  config.eos_token_id = 1;
  config.bos_token_id = 2;
  parse_gemma_windows(json, config);
  parse_gemma_rope(json, config);
  return config;
}

void write_gemma3(const ModelConfig& c, nlohmann::ordered_json& json) {
  json["attention_bias"] = c.attention_bias;
  json["attention_dropout"] = c.attention_dropout;
  json["head_dim"] = c.head_dim;
  json["hidden_activation"] =
      c.activation == ActivationKind::kGeluTanh ? "gelu_pytorch_tanh" : "gelu";
  json["hidden_size"] = c.hidden_size;
  json["intermediate_size"] = c.intermediate_size;
  json["layer_types"] = layer_types(c);
  json["max_position_embeddings"] = c.max_position_embeddings;
  json["num_attention_heads"] = c.num_heads;
  json["num_hidden_layers"] = c.num_layers;
  json["num_key_value_heads"] = c.num_kv_heads;
  json["query_pre_attn_scalar"] = c.query_scalar;
  json["rms_norm_eps"] = c.norm_eps;
  write_rope(c, json);
  json["rope_parameters"] = {
      {kWholeAttention, json["rope_parameters"]},
      {kWindowedAttention, {{"rope_theta", c.local_rope_theta}, {"rope_type", "default"}}}};
  json["rope_local_base_freq"] = c.local_rope_theta;
  if (c.sliding_window > 0) json["sliding_window"] = c.sliding_window;
}

class Gemma3Architecture final : public ModelArchitecture {
 public:
  std::span<const ArchitectureName> names() const override {
    static constexpr std::array kNames{ArchitectureName{
        Architecture::kGemma3, DecoderFamily::kLlama, "gemma3_text", "Gemma3ForCausalLM"}};
    return kNames;
  }
  bool is_causal() const override { return true; }

  ModelConfig parse(const JsonReader& json, const ArchitectureName&) const override {
    return parse_gemma3(json);
  }
  HeadKeys head_keys(const JsonReader&, const ModelConfig&) const override {
    return {.divided = false};
  }
  void write(const ModelConfig& config, nlohmann::ordered_json& json) const override {
    write_gemma3(config, json);
  }

  std::int64_t parameters(const ModelConfig& c) const override { return decoder_parameters(c, 4); }
  const HfNameRules& hf_names() const override { return decoder_names(); }
  void add_styles(StyleMaker& plan) const override {
    add_decoder_styles(plan);
    plan.positions("model.layers.*.pre_feedforward_layernorm");
    plan.positions("model.layers.*.post_feedforward_layernorm");
  }
  std::unique_ptr<Model> make(ExecutionContext& context, const ModelConfig& config,
                              DType dtype) const override {
    return std::make_unique<Gemma3>(context, config, dtype);
  }
};

}  // namespace

const ModelArchitecture& gemma3_architecture() {
  static const Gemma3Architecture architecture;
  return architecture;
}

}  // namespace meshloom::nn
