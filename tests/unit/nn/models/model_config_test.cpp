// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/model_config.h"

#include <gtest/gtest.h>

#include "daemon/nn/models/presets.h"
#include "kernels/base/error.h"
#include "tests/unit/nn/models/config_json.h"

namespace meshloom::nn {
namespace {

using namespace config_json;

TEST(ModelConfig, MissingKeysTakeTransformersDefaults) {
  const ModelConfig gpt2 = parse_hf_config(gpt2_json().dump());
  EXPECT_EQ(parameter_count(gpt2), 124'439'808);
  EXPECT_EQ(gpt2.intermediate_size, 3072);
  EXPECT_EQ(gpt2.activation, ActivationKind::kGeluTanh);
  EXPECT_EQ(gpt2.eos_token_id, 50256);
  EXPECT_DOUBLE_EQ(gpt2.residual_dropout, 0.1);

  const ModelConfig llama = parse_hf_config(llama_json().dump());
  EXPECT_EQ(parameter_count(llama), 6'738'415'616) << "Llama 2 7B";
  EXPECT_FALSE(llama.tie_word_embeddings);
  EXPECT_EQ(llama.head_dim, 128);
  EXPECT_EQ(llama.bos_token_id, 1);

  const ModelConfig mistral = parse_hf_config(mistral_json().dump());
  EXPECT_EQ(parameter_count(mistral), 7'241'732'096) << "Mistral 7B";
  EXPECT_EQ(mistral.sliding_window, 4096);
  EXPECT_EQ(mistral.windowed_layer_count(), 32);
  EXPECT_FALSE(mistral.attention_bias);
  EXPECT_EQ(mistral.eos_token_id, 2);

  const ModelConfig qwen2 = parse_hf_config(qwen2_json().dump());
  EXPECT_TRUE(qwen2.attention_bias);
  EXPECT_FALSE(qwen2.attention_output_bias);
  EXPECT_EQ(qwen2.vocab_size, 151936);
  EXPECT_EQ(qwen2.num_kv_heads, 32);
  EXPECT_EQ(qwen2.sliding_window, 0);
  EXPECT_FALSE(qwen2.bos_token_id.has_value());

  const ModelConfig qwen3 = parse_hf_config(with(qwen3_json(), "hidden_size", 1024).dump());
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.attention_bias);
  EXPECT_EQ(qwen3.head_dim, 128);

  const ModelConfig bert = parse_hf_config(bert_json().dump());
  EXPECT_EQ(parameter_count(bert), 109'514'298);
  EXPECT_EQ(bert.pad_token_id, 0);
  EXPECT_DOUBLE_EQ(bert.norm_eps, 1e-12);
}

TEST(ModelConfig, KnownParameterCounts) {
  EXPECT_EQ(parameter_count(preset_config("gpt2_124m")), 124'439'808);
  EXPECT_EQ(parameter_count(preset_config("gpt2_350m")), 354'823'168);
  EXPECT_EQ(parameter_count(preset_config("gpt2_774m")), 774'030'080);
  EXPECT_EQ(parameter_count(preset_config("gpt2_1558m")), 1'557'611'200);
  EXPECT_EQ(parameter_count(preset_config("llama3_1b")), 1'235'814'400);
  EXPECT_EQ(parameter_count(preset_config("llama3_8b")), 8'030'261'248);
  EXPECT_EQ(parameter_count(preset_config("qwen2_0_5b")), 494'032'768);
  EXPECT_EQ(parameter_count(preset_config("mistral_7b")), 7'241'732'096);
  EXPECT_EQ(parameter_count(preset_config("qwen3_0_6b")), 596'049'920);
  EXPECT_EQ(parameter_count(preset_config("gemma3_270m")), 268'098'176);
  EXPECT_EQ(parameter_count(preset_config("gemma3_1b")), 999'885'952);
  EXPECT_EQ(parameter_count(preset_config("bert_base")), 109'514'298);
}

TEST(ModelConfig, WindowsOfLayers) {
  const auto windows = [](const Json& json) {
    const ModelConfig config = parse_hf_config(json.dump());
    std::vector<std::int64_t> list;
    for (std::int64_t i = 0; i < config.num_layers; ++i) list.push_back(config.window_of(i));
    return list;
  };
  using List = std::vector<std::int64_t>;
  const Json four = with(mistral_json(), "num_hidden_layers", 4);
  EXPECT_EQ(windows(four), List(4, 4096));
  EXPECT_EQ(windows(with(four, "sliding_window", 9)), List(4, 9));
  EXPECT_EQ(windows(with(four, "sliding_window", nullptr)), List(4, 0));
  const Json full(std::vector<std::string>(4, "full_attention"));
  EXPECT_EQ(windows(with(with(four, "sliding_window", nullptr), "layer_types", full)), List(4, 0));
  for (const Json& qwen : {qwen2_json(), qwen3_json()}) {
    const Json on = with(windowed(qwen), "sliding_window", 7);
    EXPECT_EQ(windows(on), List(4, 0)) << "max_window_layers is 28";
    EXPECT_EQ(windows(with(on, "max_window_layers", 1)), (List{0, 7, 7, 7}));
    EXPECT_EQ(windows(with(on, "max_window_layers", 0)), List(4, 7));
    EXPECT_EQ(windows(with(on, "max_window_layers", 4)), List(4, 0));
    EXPECT_EQ(windows(with(with(on, "use_sliding_window", false), "max_window_layers", 1)),
              List(4, 0));
    EXPECT_EQ(windows(with(with(on, "sliding_window", nullptr), "max_window_layers", 1)),
              List(4, 0));
    EXPECT_EQ(windows(with(windowed(qwen), "max_window_layers", 3)), (List{0, 0, 0, 4096}));
    const Json types = {"sliding_attention", "full_attention", "full_attention",
                        "sliding_attention"};
    EXPECT_EQ(windows(with(on, "layer_types", types)), (List{7, 0, 0, 7}));
    EXPECT_EQ(windows(with(with(on, "use_sliding_window", false), "layer_types", full)),
              List(4, 0));
  }
}

TEST(ModelConfig, FlopsPerToken) {
  const ModelConfig gpt2 = preset_config("gpt2_124m");
  const double expected = 6.0 * (124'439'808.0 - 1024.0 * 768.0) + 6.0 * 12.0 * 768.0 * 1024.0;
  EXPECT_DOUBLE_EQ(flops_per_token(gpt2, 1024), expected);
  const ModelConfig llama = preset_config("llama3_8b");
  EXPECT_DOUBLE_EQ(flops_per_token(llama, 8192),
                   6.0 * (8'030'261'248.0 - 128256.0 * 4096.0) + 6.0 * 32.0 * 4096.0 * 8192.0);
  // Of 8192 positions a query of Mistral sees the 4096 before, or all where there are fewer.
  const ModelConfig mistral = preset_config("mistral_7b");
  const double multiplied = 6.0 * (7'241'732'096.0 - 32000.0 * 4096.0);
  EXPECT_DOUBLE_EQ(flops_per_token(mistral, 8192),
                   multiplied + 6.0 * 32.0 * 4096.0 * 0.75 * 8192.0);
  EXPECT_DOUBLE_EQ(flops_per_token(mistral, 2048), multiplied + 6.0 * 32.0 * 4096.0 * 2048.0);
  const ModelConfig bert = preset_config("bert_base");
  EXPECT_DOUBLE_EQ(flops_per_token(bert, 512),
                   6.0 * (109'514'298.0 - 514.0 * 768.0) + 12.0 * 12.0 * 768.0 * 512.0);
}

TEST(ModelConfig, PairsThatSeeEachOther) {
  ModelConfig config = preset_config("mistral_7b");
  config.sliding_window = 4;
  EXPECT_DOUBLE_EQ(attention_pairs(config, 3), 4.5) << "a token and itself are half a pair";
  EXPECT_DOUBLE_EQ(attention_pairs(config, 10), 10.0 * 4.0 - 8.0);
  config.windowed_layers.assign(static_cast<std::size_t>(config.num_layers), false);
  config.windowed_layers[0] = true;
  const double share = 1.0 / static_cast<double>(config.num_layers);
  EXPECT_DOUBLE_EQ(attention_pairs(config, 10), share * 32.0 + (1.0 - share) * 50.0);
  EXPECT_DOUBLE_EQ(attention_pairs(preset_config("bert_base"), 10), 100.0);
  EXPECT_DOUBLE_EQ(model_flops(preset_config("gpt2_124m")).per_pair, 12.0 * 12.0 * 768.0);
}

TEST(ModelConfig, BothSpellingsOfRope) {
  const Json llama3 = {{"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192},
                       {"rope_type", "llama3"}};
  Json newer = llama3;
  newer["rope_theta"] = 500000.0;
  Json old_type = llama3;
  old_type.erase("rope_type");
  old_type["type"] = "llama3";
  const Json four = with(with(llama_json(), "rope_theta", 500000.0), "rope_scaling", llama3);
  const Json older = with(with(llama_json(), "rope_theta", 500000.0), "rope_scaling", old_type);
  const Json five = with(llama_json(), "rope_parameters", newer);
  const Json both = with(four, "rope_parameters", newer);
  for (const Json& json : {four, older, five, both}) {
    const ModelConfig config = parse_hf_config(json.dump());
    EXPECT_DOUBLE_EQ(config.rope_theta, 500000.0);
    ASSERT_TRUE(config.rope_scaling.has_value());
    EXPECT_DOUBLE_EQ(config.rope_scaling->factor, 8.0);
    EXPECT_EQ(config.rope_scaling->original_max_position_embeddings, 8192);
  }
  const ModelConfig plain = parse_hf_config(
      with(llama_json(), "rope_parameters", {{"rope_theta", 5.0}, {"rope_type", "default"}})
          .dump());
  EXPECT_DOUBLE_EQ(plain.rope_theta, 5.0);
  EXPECT_FALSE(plain.rope_scaling.has_value());
  EXPECT_DOUBLE_EQ(parse_hf_config(with(llama_json(), "rope_scaling", nullptr).dump()).rope_theta,
                   10000.0);
}

TEST(ModelConfig, ScalingsOfRope) {
  const auto read = [](const Json& json) { return parse_hf_config(json.dump()); };
  const Json base = with(llama_json(), "max_position_embeddings", 64);
  const Json linear = {{"type", "linear"}, {"factor", 4}};
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const ModelConfig config = read(with(base, key, linear));
    EXPECT_EQ(config.rope_scaling, (RopeScaling{.type = RopeType::kLinear, .factor = 4.0}));
    EXPECT_EQ(config.context_length(), 256);
    EXPECT_GT(config.longest_sequence(), 1 << 20);
  }
  const ModelConfig dynamic =
      read(with(base, "rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.5}}));
  EXPECT_EQ(dynamic.rope_scaling->type, RopeType::kDynamic);
  EXPECT_EQ(dynamic.context_length(), 160);

  Json yarn = {{"type", "yarn"}, {"factor", 4.0}};
  ModelConfig config = read(with(base, "rope_scaling", yarn));
  EXPECT_EQ(config.rope_scaling->original_max_position_embeddings, 64) << "the model's";
  EXPECT_EQ(config.rope_scaling->beta_fast, 32.0);
  EXPECT_TRUE(config.rope_scaling->truncate);
  EXPECT_EQ(config.context_length(), 256);
  yarn = {{"type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 16},
          {"beta_fast", 0}, {"mscale", 0.0},     {"truncate", nullptr}};
  config = read(with(base, "rope_scaling", yarn));
  EXPECT_EQ(config.rope_scaling->factor, 4.0) << "of the lengths";
  EXPECT_EQ(config.rope_scaling->beta_fast, 32.0) << "0 is not given";
  EXPECT_FALSE(config.rope_scaling->mscale.has_value());
  EXPECT_FALSE(config.rope_scaling->truncate) << "null is not the default";
  EXPECT_EQ(config.context_length(), 64);
  EXPECT_TRUE(config_notes(config).empty());

  const Json outside =
      with(with(base, "original_max_position_embeddings", 32), "rope_scaling", yarn);
  config = read(outside);
  EXPECT_EQ(config.rope_scaling->original_max_position_embeddings, 32);
  EXPECT_EQ(config_notes(config).size(), 1u);
  EXPECT_FALSE(read(with(base, "original_max_position_embeddings", 32)).rope_scaling.has_value());
  EXPECT_EQ(read(with(base, "rope_scaling", Json::object())).longest_sequence(), 64);
  EXPECT_EQ(
      config_notes(read(with(base, "rope_scaling", {{"type", "linear"}, {"factor", 0.5}}))).size(),
      1u);
}

TEST(ModelConfig, AShorterWindowOfALlamaIsTold) {
  const ModelConfig config = parse_hf_config(with(llama_json(), "sliding_window", 64).dump());
  EXPECT_EQ(config.sliding_window, 0);
  ASSERT_EQ(config_notes(config).size(), 1u);
  EXPECT_EQ(config_notes(config)[0],
            "config.json: sliding_window 64 has no effect: a Llama has no windows");
}

TEST(ModelConfig, AnEmptyListOfArchitecturesSaysNothing) {
  for (const Json& none : {Json::array(), Json(nullptr)}) {
    EXPECT_EQ(parse_hf_config(with(bert_json(), "architectures", none).dump()).architecture,
              Architecture::kBert);
    EXPECT_EQ(parse_hf_config(with(qwen3_json(), "architectures", none).dump()).family,
              DecoderFamily::kQwen3);
  }
}

TEST(ModelConfig, ErrorsNameTheKey) {
  Json scaling = {{"rope_type", "llama3"},
                  {"factor", 8.0},
                  {"low_freq_factor", 1.0},
                  {"high_freq_factor", 1.0}};
  const auto yarn = [](const char* key, const Json& value) {
    return with({{"rope_type", "yarn"}, {"factor", 4.0}}, key, value);
  };
  struct Case {
    Json json;
    const char* key;
    ErrorKind kind;
  };
  constexpr auto kWrong = ErrorKind::kInvalidArgument;
  constexpr auto kRefused = ErrorKind::kUnimplemented;
  const std::vector<Case> cases = {
      {with(gpt2_json(), "architectures", {"GPT2Model"}), "architectures", kRefused},
      {with(gpt2_json(), "architectures", "GPT2LMHeadModel"), "architectures", kWrong},
      {Json{{"vocab_size", 5}}, "architectures", kWrong},
      {Json{{"model_type", "mamba"}}, "model_type", kRefused},
      {with(gpt2_json(), "n_embd", "768"), "n_embd", kWrong},
      {with(gpt2_json(), "n_embd", 0), "n_embd", kWrong},
      {with(gpt2_json(), "n_embd", -3), "n_embd", kWrong},
      {with(gpt2_json(), "n_embd", 18446744073709551615ull), "n_embd", kWrong},
      {with(gpt2_json(), "n_embd", 767), "n_embd", kWrong},
      {with(gpt2_json(), "n_layer", 2.5), "n_layer", kWrong},
      {with(gpt2_json(), "attn_pdrop", 1.0), "attn_pdrop", kWrong},
      {with(gpt2_json(), "resid_pdrop", -0.1), "resid_pdrop", kWrong},
      {with(gpt2_json(), "activation_function", "mish"), "activation_function", kRefused},
      {with(gpt2_json(), "activation_function", 1), "activation_function", kWrong},
      {with(gpt2_json(), "scale_attn_weights", false), "scale_attn_weights", kRefused},
      {with(gpt2_json(), "scale_attn_by_inverse_layer_idx", true),
       "scale_attn_by_inverse_layer_idx", kRefused},
      {with(gpt2_json(), "reorder_and_upcast_attn", true), "reorder_and_upcast_attn", kRefused},
      {with(gpt2_json(), "add_cross_attention", true), "add_cross_attention", kRefused},
      {with(gpt2_json(), "quantization_config", {{"bits", 4}}), "quantization_config", kRefused},
      {with(gpt2_json(), "pruned_heads", {{"0", {1}}}), "pruned_heads", kRefused},
      {with(gpt2_json(), "tie_word_embeddings", 1), "tie_word_embeddings", kWrong},
      {with(gpt2_json(), "eos_token_id", {1, "x"}), "eos_token_id", kWrong},
      {with(bert_json(), "position_embedding_type", "relative_key"), "position_embedding_type",
       kRefused},
      {with(bert_json(), "is_decoder", true), "is_decoder", kRefused},
      {with(bert_json(), "pad_token_id", 40000), "pad_token_id", kWrong},
      {with(llama_json(), "hidden_act", "gelu"), "hidden_act", kRefused},
      {with(llama_json(), "num_key_value_heads", 5), "num_key_value_heads", kWrong},
      {with(llama_json(), "num_key_value_heads", 64), "num_key_value_heads", kWrong},
      {with(llama_json(), "head_dim", 15), "head_dim", kWrong},
      {with(llama_json(), "rope_theta", 0.0), "rope_theta", kWrong},
      {with(llama_json(), "rope_scaling",
            {{"type", "longrope"}, {"short_factor", {1.0}}, {"long_factor", {2.0}}}),
       "rope_scaling.type", kRefused},
      {with(llama_json(), "rope_parameters", {{"rope_type", "proportional"}}),
       "rope_parameters.rope_type", kRefused},
      {with(llama_json(), "rope_scaling", {{"type", "linear"}}), "rope_scaling.factor", kWrong},
      {with(llama_json(), "rope_scaling", {{"type", "linear"}, {"factor", 0.0}}),
       "rope_scaling.factor", kWrong},
      {with(llama_json(), "rope_scaling", {{"type", "dynamic"}, {"factor", "4"}}),
       "rope_scaling.factor", kWrong},
      {with(with(llama_json(), "head_dim", 2), "rope_scaling",
            {{"type", "dynamic"}, {"factor", 4.0}}),
       "head_dim", kWrong},
      {with(llama_json(), "rope_parameters", {{"rope_type", "yarn"}}), "rope_parameters.factor",
       kWrong},
      {with(llama_json(), "rope_scaling", yarn("attention_factor", -1.0)),
       "rope_scaling.attention_factor", kWrong},
      {with(llama_json(), "rope_scaling", yarn("beta_slow", -1.0)), "rope_scaling.beta_slow",
       kWrong},
      {with(llama_json(), "rope_scaling", yarn("rope_theta", 1.0)), "rope_scaling.rope_theta",
       kWrong},
      {with(llama_json(), "rope_scaling", yarn("truncate", 1)), "rope_scaling.truncate", kWrong},
      {with(llama_json(), "rope_scaling", yarn("original_max_position_embeddings", 0)),
       "rope_scaling.original_max_position_embeddings", kWrong},
      {with(llama_json(), "rope_scaling", yarn("partial_rotary_factor", 0.5)),
       "rope_scaling.partial_rotary_factor", kRefused},
      {with(qwen3_json(), "rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}),
       "rope_parameters.full_attention", kRefused},
      {with(llama_json(), "rope_scaling", scaling), "rope_scaling.high_freq_factor", kWrong},
      {with(llama_json(), "is_causal", false), "is_causal", kRefused},
      {with(llama_json(), "per_layer_config", {{"0", {{"num_attention_heads", 4}}}}),
       "per_layer_config", kRefused},
      {with(gpt2_json(), "hidden_size", "64"), "hidden_size", kWrong},
      {with(gpt2_json(), "hidden_size", 767), "hidden_size", kWrong},
      {with(llama_json(), "rope_scaling", 3), "rope_scaling", kWrong},
      {with(llama_json(), "partial_rotary_factor", 0.5), "partial_rotary_factor", kRefused},
      {with(mistral_json(), "sliding_window", 0), "sliding_window", kWrong},
      {with(mistral_json(), "hidden_act", "gelu"), "hidden_act", kRefused},
      {with(with(mistral_json(), "num_hidden_layers", 1), "layer_types", {"full_attention"}),
       "layer_types", kRefused},
      {with(qwen2_json(), "num_attention_heads", 16), "num_key_value_heads", kWrong},
      {with(qwen2_json(), "use_sliding_window", "yes"), "use_sliding_window", kWrong},
      {with(windowed(qwen2_json()), "max_window_layers", -1), "max_window_layers", kWrong},
      {with(windowed(qwen2_json()), "layer_types", {"full_attention"}), "layer_types", kWrong},
      {with(windowed(qwen3_json()), "layer_types",
            {"full_attention", "chunked_attention", "full_attention", "full_attention"}),
       "layer_types", kRefused},
      {with(with(qwen3_json(), "num_hidden_layers", 1), "layer_types", {"sliding_attention"}),
       "layer_types", kWrong},
      {with(with(windowed(qwen3_json()), "sliding_window", nullptr), "layer_types",
            Json(std::vector<std::string>(4, "sliding_attention"))),
       "layer_types", kWrong},
      {with(qwen3_json(), "rope_scaling", {{"type", "mrope"}}), "rope_scaling.type", kRefused},
      {with(qwen3_json(), "architectures", {"Qwen3MoeForCausalLM"}), "architectures", kRefused},
      {with(with(llama_json(), "rope_scaling", {{"type", "default"}}), "rope_parameters",
            {{"rope_theta", 7.0}}),
       "rope_scaling", kWrong},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.json.dump());
    try {
      parse_hf_config(c.json.dump());
      ADD_FAILURE() << "was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), c.kind) << e.what();
      EXPECT_NE(std::string(e.what()).find(c.key), std::string::npos) << e.what();
      EXPECT_EQ(e.metadata().at("key"), c.key);
    }
  }
  EXPECT_THROW(parse_hf_config("{"), InvalidArgument);
  EXPECT_THROW(parse_hf_config("[]"), InvalidArgument);
  EXPECT_THROW(parse_hf_config(std::string(100000, '[')), InvalidArgument);
}

TEST(ModelConfig, AKeyTwiceAndEndlessNestingAreRefusedByName) {
  const auto error_of = [](const std::string& text) -> std::string {
    try {
      parse_hf_config(text);
      return "";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.reason(), "INVALID_MODEL_CONFIG");
      return error.what();
    }
  };
  const std::string rest = R"("architectures": ["GPT2LMHeadModel"]})";
  EXPECT_EQ(error_of(R"({"model_type": "gpt2", "model_type": "gpt2", )" + rest),
            "config.json: has the key \"model_type\" twice in one object");
  EXPECT_EQ(error_of(R"({"task": {"a": 1, "b": 2, "a": 3}, )" + rest),
            "config.json: has the key \"a\" twice in one object");
  const std::string deep = std::string(400'000, '[') + std::string(400'000, ']');
  EXPECT_EQ(error_of(R"({"unknown": )" + deep + ", " + rest),
            "config.json: nests its values deeper than 64 levels");
  EXPECT_NE(error_of(R"({"model_type": "llama", )" + rest).find("model_type is 'llama'"),
            std::string::npos);
  EXPECT_EQ(error_of(R"({"model_type": "gpt2", )" + rest), "");
}

TEST(ModelConfig, NullIsNoSize) {
  for (const auto& [json, keys] :
       {std::pair(gpt2_json(),
                  std::vector<const char*>{"n_layer", "n_head", "n_embd", "n_positions",
                                           "num_hidden_layers", "vocab_size", "layer_norm_epsilon",
                                           "resid_pdrop", "initializer_range"}),
        std::pair(llama_json(),
                  std::vector<const char*>{"hidden_size", "num_hidden_layers", "intermediate_size",
                                           "num_attention_heads", "max_position_embeddings",
                                           "rms_norm_eps", "attention_dropout"}),
        std::pair(bert_json(), std::vector<const char*>{"type_vocab_size", "layer_norm_eps"})})
    for (const char* key : keys) {
      try {
        parse_hf_config(with(json, key, nullptr).dump());
        ADD_FAILURE() << key << " of null was taken";
      } catch (const InvalidArgument& error) {
        EXPECT_EQ(error.metadata().at("key"), key) << error.what();
      }
    }
  EXPECT_NO_THROW(parse_hf_config(
      with(with(llama_json(), "num_key_value_heads", nullptr), "head_dim", nullptr).dump()));
}

TEST(ModelConfig, RefusalsListWhatIsSupported) {
  for (const Json& json :
       {Json{{"model_type", "mixtral"}}, with(gpt2_json(), "architectures", {"T5Model"})}) {
    try {
      parse_hf_config(json.dump());
      ADD_FAILURE() << json << " was accepted";
    } catch (const Unimplemented& e) {
      const std::string text = e.what();
      EXPECT_NE(
          text.find("GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, "
                    "Qwen3ForCausalLM, Gemma3ForCausalLM and BertForMaskedLM are supported"),
          std::string::npos)
          << text;
    }
  }
}

TEST(ModelConfig, NullIsMissing) {
  const ModelConfig config =
      parse_hf_config(with(with(with(gpt2_json(), "n_inner", nullptr), "eos_token_id", nullptr),
                           "quantization_config", nullptr)
                          .dump());
  EXPECT_EQ(config.intermediate_size, 3072);
  EXPECT_FALSE(config.eos_token_id.has_value());
  EXPECT_EQ(config.bos_token_id, 50256);
}

TEST(ModelConfig, EosList) {
  const ModelConfig config = parse_hf_config(with(llama_json(), "eos_token_id", {7, 8, 9}).dump());
  EXPECT_EQ(config.eos_token_id, 7);
  EXPECT_EQ(config.more_eos_token_ids, (std::vector<std::int64_t>{8, 9}));
  EXPECT_EQ(Json::parse(to_hf_config(config))["eos_token_id"], Json({7, 8, 9}));
}

TEST(ModelConfig, WritingAndReadingGivesTheSame) {
  std::vector<std::string> texts;
  for (const std::string& name : preset_names()) texts.push_back(preset_text(name));
  texts.push_back(with(with(gpt2_json(), "n_inner", 100), "activation_function", "relu").dump());
  texts.push_back(with(with(llama_json(), "attention_bias", true), "mlp_bias", true).dump());
  texts.push_back(with(with(llama_json(), "head_dim", 64), "eos_token_id", {3, 4}).dump());
  texts.push_back(with(mistral_json(), "sliding_window", nullptr).dump());
  texts.push_back(with(with(mistral_json(), "sliding_window", 100), "head_dim", 160).dump());
  texts.push_back(with(windowed(qwen2_json()), "max_window_layers", 2).dump());
  for (const char* type : {"linear", "dynamic"})
    texts.push_back(with(with(llama_json(), "max_position_embeddings", 64), "rope_parameters",
                         {{"rope_type", type}, {"factor", 4.0}, {"rope_theta", 500.0}})
                        .dump());
  texts.push_back(
      with(with(windowed(qwen3_json()), "attention_bias", true), "layer_types",
           {"sliding_attention", "full_attention", "sliding_attention", "full_attention"})
          .dump());
  for (const std::string& text : texts) {
    const ModelConfig config = parse_hf_config(text);
    const std::string written = to_hf_config(config, DType::kBFloat16);
    EXPECT_EQ(to_hf_config(parse_hf_config(written), DType::kBFloat16), written);
    EXPECT_EQ(Json::parse(written)["dtype"], "bfloat16");
    EXPECT_EQ(parameter_count(parse_hf_config(written)), parameter_count(config));
    // Every key that both texts have says the same.
    const Json before = Json::parse(text), after = Json::parse(written);
    for (const auto& [key, value] : before.items()) {
      if (after.contains(key)) {
        EXPECT_EQ(after[key], value) << key;
      }
    }
  }
}

TEST(Presets, UnknownNameListsTheNames) {
  try {
    preset_config("gpt3");
    FAIL();
  } catch (const NotFound& e) {
    EXPECT_NE(std::string(e.what()).find("gpt3"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("byte_gpt_10m"), std::string::npos);
  }
}

TEST(Presets, QuickstartModel) {
  const ModelConfig config = preset_config("bpe_gpt_0_5m");
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.hidden_size, 128);
  EXPECT_EQ(config.max_position_embeddings, 128);
  EXPECT_EQ(config.vocab_size, 1024);
  EXPECT_EQ(parameter_count(config), 544'256);
}

TEST(Presets, ModelOfBytes) {
  const ModelConfig config = preset_config("byte_gpt_1m");
  EXPECT_EQ(config.num_layers, 4);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.hidden_size, 128);
  EXPECT_EQ(config.max_position_embeddings, 128);
  EXPECT_EQ(config.vocab_size, 256);
  EXPECT_EQ(parameter_count(config), 842'496);
}

TEST(Presets, QuickstartSizeModelOfTheBenchmarks) {
  const ModelConfig config = preset_config("byte_gpt_10m");
  EXPECT_EQ(config.num_layers, 6);
  EXPECT_EQ(config.num_heads, 6);
  EXPECT_EQ(config.hidden_size, 384);
  EXPECT_EQ(config.max_position_embeddings, 256);
  EXPECT_EQ(config.vocab_size, 256);
  EXPECT_EQ(parameter_count(config), 10'844'160);
}

}  // namespace
}  // namespace meshloom::nn
