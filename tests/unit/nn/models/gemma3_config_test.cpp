// SPDX-License-Identifier: Apache-2.0
// What a config.json of Gemma 3's text model says, in the spellings of transformers 4 and 5.
#include <gtest/gtest.h>

#include "daemon/nn/models/model_config.h"
#include "kernels/base/error.h"
#include "tests/unit/nn/models/config_json.h"

namespace meshloom::nn {
namespace {

using namespace config_json;

Json gemma3_json() {
  return {{"architectures", {"Gemma3ForCausalLM"}}, {"model_type", "gemma3_text"}};
}

Json four_layers() { return with(gemma3_json(), "num_hidden_layers", 4); }

std::vector<std::int64_t> windows_of(const Json& json) {
  const ModelConfig config = parse_hf_config(json.dump());
  std::vector<std::int64_t> windows;
  for (std::int64_t i = 0; i < config.num_layers; ++i) windows.push_back(config.window_of(i));
  return windows;
}

TEST(Gemma3Config, MissingKeysTakeTransformersDefaults) {
  const ModelConfig config = parse_hf_config(gemma3_json().dump());
  EXPECT_EQ(config.vocab_size, 262208);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.activation, ActivationKind::kGeluTanh);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_TRUE(config.qk_norm);
  EXPECT_TRUE(config.norms_around_one);
  EXPECT_DOUBLE_EQ(config.query_scalar, 256.0);
  EXPECT_DOUBLE_EQ(config.rope_theta, 1e6);
  EXPECT_DOUBLE_EQ(config.local_rope_theta, 1e4);
  EXPECT_EQ(config.sliding_window, 4096);
  EXPECT_EQ(config.windowed_layer_count(), 22) << "each sixth of 26 layers sees everything";
  EXPECT_EQ(config.bos_token_id, 2);
}

TEST(Gemma3Config, WindowsOfLayers) {
  using List = std::vector<std::int64_t>;
  const Json four = with(four_layers(), "sliding_window", 9);
  EXPECT_EQ(windows_of(four), List(4, 9));
  EXPECT_EQ(windows_of(with(four, "sliding_window_pattern", 2)), (List{9, 0, 9, 0}));
  EXPECT_EQ(windows_of(with(four, "sliding_window_pattern", 1)), List(4, 0));
  const Json types = {"full_attention", "sliding_attention", "full_attention", "full_attention"};
  EXPECT_EQ(windows_of(with(four, "layer_types", types)), (List{0, 9, 0, 0}));
  EXPECT_EQ(windows_of(with(with(four, "sliding_window_pattern", 2), "layer_types", types)),
            (List{0, 9, 0, 0}))
      << "the list counts first";
}

TEST(Gemma3Config, BothSpellingsOfRopeSayTheSame) {
  Json older = four_layers();
  older.update({{"rope_theta", 5e5},
                {"rope_local_base_freq", 5e3},
                {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}});
  const Json newer =
      with(four_layers(), "rope_parameters",
           {{"full_attention", {{"rope_type", "linear"}, {"rope_theta", 5e5}, {"factor", 8.0}}},
            {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 5e3}}}});
  const ModelConfig config = parse_hf_config(newer.dump());
  EXPECT_EQ(to_hf_config(config), to_hf_config(parse_hf_config(older.dump())));
  EXPECT_DOUBLE_EQ(config.rope_theta, 5e5);
  EXPECT_DOUBLE_EQ(config.local_rope_theta, 5e3);
  ASSERT_TRUE(config.rope_scaling.has_value());
  EXPECT_DOUBLE_EQ(config.rope_scaling->factor, 8.0);
}

TEST(Gemma3Config, WritingAndReadingGivesTheSame) {
  for (const Json& json :
       {four_layers(), with(four_layers(), "sliding_window_pattern", 1),
        with(with(four_layers(), "attention_bias", true), "hidden_activation", "gelu"),
        with(four_layers(), "query_pre_attn_scalar", 168.0)}) {
    const ModelConfig config = parse_hf_config(json.dump());
    const std::string written = to_hf_config(config);
    const ModelConfig again = parse_hf_config(written);
    EXPECT_EQ(to_hf_config(again), written);
    EXPECT_EQ(parameter_count(again), parameter_count(config));
    EXPECT_EQ(again.windowed_layer_count(), config.windowed_layer_count());
    EXPECT_TRUE(again.unread_keys.empty());
  }
}

TEST(Gemma3Config, RefusesByNameWhatIsNotOffered) {
  const auto whole = [](const Json& rope) {
    return with(four_layers(), "rope_parameters", {{"full_attention", rope}});
  };
  const std::vector<std::pair<Json, std::string>> cases = {
      {with(gemma3_json(), "final_logit_softcapping", 30.0), "final_logit_softcapping"},
      {with(gemma3_json(), "attn_logit_softcapping", 50.0), "attn_logit_softcapping"},
      {with(gemma3_json(), "use_bidirectional_attention", true), "use_bidirectional_attention"},
      {with(gemma3_json(), "hidden_activation", "relu"), "hidden_activation"},
      {with(gemma3_json(), "query_pre_attn_scalar", 0), "query_pre_attn_scalar"},
      {with(gemma3_json(), "head_dim", 7), "head_dim"},
      {with(gemma3_json(), "rope_local_base_freq", 0), "rope_local_base_freq"},
      {with(four_layers(), "layer_types", {"full_attention"}), "layer_types"},
      {with(four_layers(), "rope_parameters", Json::object()), "full_attention"},
      {whole({{"rope_type", "dynamic"}, {"factor", 2.0}}), "rope_scaling"},
      {with(four_layers(), "rope_parameters",
            {{"full_attention", {{"rope_type", "default"}}}, {"sliding_attention", 1}}),
       "sliding_attention"},
  };
  for (const auto& [json, key] : cases) {
    try {
      parse_hf_config(json.dump());
      ADD_FAILURE() << json << " was accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace meshloom::nn
