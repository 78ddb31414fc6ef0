// SPDX-License-Identifier: Apache-2.0
// Keys of a config.json that have two names, that mean nothing, or that nobody knows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "daemon/nn/models/model_config.h"
#include "daemon/nn/models/presets.h"
#include "kernels/base/error.h"
#include "tests/unit/nn/models/config_json.h"

namespace meshloom::nn {
namespace {

using namespace config_json;

TEST(ConfigKeys, Gpt2TakesTheCommonNames) {
  const Json common = {{"hidden_size", 64},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 4},
                       {"max_position_embeddings", 64},
                       {"vocab_size", 256}};
  Json json = gpt2_json();
  json.update(common);
  const ModelConfig config = parse_hf_config(json.dump());
  EXPECT_EQ(parameter_count(config), 120'576);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_TRUE(config_notes(config).empty());
  EXPECT_EQ(parameter_count(parse_hf_config(to_hf_config(config))), 120'576);
  // As in transformers they count before GPT-2's own; null is no value.
  const ModelConfig both = parse_hf_config(with(with(json, "n_embd", 128), "n_layer", 2).dump());
  EXPECT_EQ(both.hidden_size, 64);
  ASSERT_EQ(config_notes(both).size(), 1u);
  EXPECT_EQ(config_notes(both)[0],
            "config.json: hidden_size 64 counts, not n_embd 128, as in transformers");
  EXPECT_EQ(parse_hf_config(with(with(gpt2_json(), "n_embd", 96), "hidden_size", nullptr).dump())
                .hidden_size,
            96);
}

TEST(ConfigKeys, UnreadKeysAreTold) {
  struct Case {
    Json json;
    const char* key;
    const char* nearest;
  };
  const std::vector<Case> cases = {
      {with(gpt2_json(), "n_embed", 64), "n_embed", "hidden_size"},
      {with(gpt2_json(), "n_lyaer", 2), "n_lyaer", "n_layer"},
      {with(gpt2_json(), "n_ctx", 64), "n_ctx", "max_position_embeddings"},
      {with(llama_json(), "n_embd", 64), "n_embd", "hidden_size"},
      {with(llama_json(), "d_model", 64), "d_model", "hidden_size"},
      {with(llama_json(), "ffn_dim", 64), "ffn_dim", "intermediate_size"},
      {with(llama_json(), "num_layers", 2), "num_layers", "num_hidden_layers"},
      {with(bert_json(), "n_embd", 64), "n_embd", "hidden_size"},
      {with(bert_json(), "rope_theta", 5.0), "rope_theta", ""},
      {with(qwen2_json(), "rope_interleaved", true), "rope_interleaved", ""},
      {with(llama_json(), "rope_scaling", {{"factor", 4.0}}), "rope_scaling.factor", ""},
      {with(llama_json(), "rope_scaling", {{"type", "yarn"}, {"factor", 4.0}, {"beta_fats", 16}}),
       "rope_scaling.beta_fats", "beta_fast"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.json.dump());
    const ModelConfig config = parse_hf_config(c.json.dump());
    ASSERT_EQ(config.unread_keys.size(), 1u);
    EXPECT_EQ(config.unread_keys[0].name, c.key);
    EXPECT_EQ(config.unread_keys[0].nearest, c.nearest);
    ASSERT_EQ(config_notes(config).size(), 1u);
    EXPECT_NE(config_notes(config)[0].find(c.key), std::string::npos) << config_notes(config)[0];
    try {
      refuse_unread_keys(config);
      ADD_FAILURE() << "was accepted";
    } catch (const InvalidArgument& e) {
      EXPECT_EQ(e.metadata().at("key"), c.key);
      EXPECT_NE(std::string(e.what()).find(c.nearest), std::string::npos) << e.what();
    }
  }
  Json many = llama_json();
  for (int i = 0; i < 20; ++i) many[fmt::format("unknown_{:02}", i)] = i;
  many[std::string(1000, 'x') + "\n"] = 1;
  const std::vector<std::string> notes = config_notes(parse_hf_config(many.dump()));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("unknown_07 and 13 more"), std::string::npos) << notes[0];
}

TEST(ConfigKeys, HarmlessKeysPassInSilence) {
  const Json common = {{"_name_or_path", "x"},
                       {"transformers_version", "4.40.0"},
                       {"torch_dtype", "bfloat16"},
                       {"use_cache", true},
                       {"id2label", {{"0", "LABEL_0"}}},
                       {"label2id", {{"LABEL_0", 0}}},
                       {"task_specific_params", {{"text-generation", {{"do_sample", true}}}}},
                       {"do_sample", true},
                       {"max_length", 50},
                       {"gradient_checkpointing", false},
                       {"pretraining_tp", 2},
                       {"auto_map", {{"AutoConfig", "x"}}},
                       {"sep_token_id", 3},
                       {"unsloth_fixed", true},
                       {"problem_type", nullptr},
                       {"anything", nullptr},
                       {"use_mrope", false},
                       {"rope_interleaved", false},
                       {"output_past", true}};
  const std::vector<Json> configs = {
      with(with(gpt2_json(), "n_ctx", 1024), "n_positions", 1024),
      with(with(gpt2_json(), "summary_type", "cls_index"), "summary_first_dropout", 0.1),
      with(with(with(llama_json(), "sliding_window", 4096), "max_sequence_length", 2048),
           "max_position_embeddings", 2048),
      with(with(llama_json(), "attention_bias", false), "mlp_bias", false),
      mistral_json(),
      with(with(qwen2_json(), "max_window_layers", 21), "use_sliding_window", false),
      windowed(qwen3_json()),
      with(with(bert_json(), "pooler_type", "first_token_transform"), "directionality", "bidi"),
      with(with(bert_json(), "classifier_dropout", nullptr), "position_embedding_type",
           "absolute")};
  for (Json json : configs) {
    json.update(common);
    const ModelConfig config = parse_hf_config(json.dump());
    EXPECT_EQ(config_notes(config), std::vector<std::string>()) << json;
    EXPECT_NO_THROW(refuse_unread_keys(config));
  }
  for (const std::string& name : preset_names())
    EXPECT_EQ(config_notes(preset_config(name)), std::vector<std::string>()) << name;
}

}  // namespace
}  // namespace meshloom::nn
