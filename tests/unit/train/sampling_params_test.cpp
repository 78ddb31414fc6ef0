// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/sampling_params.h"

#include <gtest/gtest.h>

#include "daemon/nn/models/presets.h"
#include "tests/support/temp_folder.h"

namespace meshloom::train {
namespace {

TEST(PromptLimits, CachesOfLayersWithAWindowStopGrowing) {
  // 32 layers of 8 key-value heads of 128, float32, keys and values.
  constexpr std::int64_t kPosition = 2 * 32 * 8 * 128 * 4;
  const PromptLimits mistral = prompt_limits(nn::preset_config("mistral_7b"));
  EXPECT_EQ(mistral.sequence_cache_bytes(1000), 1000 * kPosition);
  EXPECT_EQ(mistral.sequence_cache_bytes(8192), 8192 * kPosition);
  EXPECT_EQ(mistral.sequence_cache_bytes(20'000), 8192 * kPosition);

  nn::ModelConfig mixed = nn::preset_config("mistral_7b");
  mixed.windowed_layers.assign(32, false);
  mixed.windowed_layers[5] = true;
  EXPECT_EQ(prompt_limits(mixed).sequence_cache_bytes(20'000),
            (20'000 * 31 + 8192) * (kPosition / 32));

  const PromptLimits qwen = prompt_limits(nn::preset_config("qwen3_0_6b"));
  const std::int64_t position = 2 * 28 * 8 * 128 * 4;
  EXPECT_EQ(qwen.sequence_cache_bytes(20'000), 20'000 * position);
  EXPECT_EQ(qwen.sequence_cache_bytes(100'000), 40'960 * position) << "the context";
}

TEST(PromptLimits, RanksOfASequenceShareItsCacheAndThoseOfFsdpDoNot) {
  const nn::ModelConfig config = nn::preset_config("qwen3_0_6b");
  v1::RunConfig run;
  run.mutable_plan()->set_dtype("float32");
  const PromptLimits one = prompt_limits(config, run);
  run.mutable_mesh()->set_cp(4);
  run.mutable_mesh()->set_fsdp(3);
  const PromptLimits shared = prompt_limits(config, run);
  EXPECT_EQ(shared.sequence_cache_bytes(20'000), one.sequence_cache_bytes(20'000));
  EXPECT_EQ(shared.cache_copies, 3);
}

TEST(PromptLimits, AModelOf256TokensHasBytesUnlessItsTokenizerIsAnother) {
  const test::TempFolder folder;
  const auto limits = [&](const std::string& tokenizer) {
    if (!tokenizer.empty()) folder.write("tokenizer.json", tokenizer);
    PromptLimits found;
    found.vocab_size = 256;
    text::TokenizerCache opened;
    add_tokenizer(found, folder.path(), opened);
    return found;
  };
  EXPECT_TRUE(limits("").is_bytes());
  EXPECT_TRUE(limits(byte_tokenizer_json()).is_bytes());
  const PromptLimits named = limits(R"({"version": "1.0", "model": {"type": "BPE",
      "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
  EXPECT_FALSE(named.is_bytes());
  EXPECT_EQ(prompt_tokens("aba", {},
                          [&] {
                            PromptLimits causal = named;
                            causal.context_length = 8;
                            return causal;
                          }()),
            (std::vector<std::int64_t>{2, 0}));
  const PromptLimits unknown = limits(R"({"version": "9.0"})");
  EXPECT_FALSE(unknown.has_text()) << "no bytes in the place of a tokenizer that is not known";
  EXPECT_FALSE(unknown.no_tokenizer.empty());
}

}  // namespace
}  // namespace meshloom::train
