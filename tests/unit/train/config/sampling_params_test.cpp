// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/sampling_params.h"

#include <gtest/gtest.h>

#include "daemon/nn/models/presets.h"
#include "tests/support/reason_of.h"
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

/// Makes no token, and knows whether it was asked.
class AskedTokenizer final : public text::Tokenizer {
 public:
  using Tokenizer::decode;
  using Tokenizer::encode;
  void encode(std::string_view, bool, text::WordCache&, text::Budget& budget,
              std::vector<text::TokenId>& out) const override {
    asked = true;
    budget.spend(text::Budget::kSteps / 2, "model");
    out.push_back(0);
  }
  std::string decode(std::span<const text::TokenId>, bool, text::Budget&) const override {
    return {};
  }
  text::TokenId end() const override { return 1; }
  std::optional<text::TokenId> find(std::string_view) const override { return std::nullopt; }

  mutable bool asked = false;
};

TEST(PromptTokens, APromptOfManyContextsIsNotEncoded) {
  const auto tokenizer = std::make_shared<AskedTokenizer>();
  PromptLimits limits{.vocab_size = 1000, .context_length = 128, .tokenizer = tokenizer};
  const std::size_t most = 1024 + 16 * 128;
  EXPECT_EQ(test::reason_of([&] { prompt_tokens(std::string(most + 1, 'a'), {}, limits); }),
            "PROMPT_TOO_LONG");
  EXPECT_FALSE(tokenizer->asked);
  EXPECT_EQ(prompt_tokens(std::string(most, 'a'), {}, limits).size(), 1u);
  EXPECT_TRUE(tokenizer->asked);
}

TEST(PromptTokens, AreEndedByTheStopCheckAndTheBudget) {
  PromptLimits limits{
      .vocab_size = 1000, .context_length = 128, .tokenizer = std::make_shared<AskedTokenizer>()};
  EXPECT_THROW(prompt_tokens("a", {}, limits, "", [] { throw Cancelled("gone"); }), Cancelled);
  const test::TempFolder folder;
  folder.write("tokenizer.json", R"({"version": "1.0", "normalizer": {"type": "Replace",
      "pattern": {"String": "a"}, "content": ")" +
                                     std::string(5000, 'a') + R"("}, "model": {"type": "BPE",
      "vocab": {"a": 0}, "merges": []}})");
  text::TokenizerCache opened;
  limits.tokenizer = nullptr;
  add_tokenizer(limits, folder.path(), opened);
  EXPECT_TRUE(limits.tokenizer_is_refused);
  try {
    prompt_tokens("a", {}, limits);
    ADD_FAILURE() << "it was taken";
  } catch (const ResourceExhausted& error) {
    EXPECT_EQ(error.reason(), "TOKENIZER_LIMIT");
    EXPECT_EQ(error.metadata().at("field"), "prompt");
    EXPECT_NE(std::string(error.what()).find("normalizer.content"), std::string::npos)
        << error.what();
  }
  // Who does not want it any more is told so, and not that there is no tokenizer.
  EXPECT_THROW(add_tokenizer(limits, folder.path(), opened, [] { throw Cancelled("gone"); }),
               Cancelled);
}

}  // namespace
}  // namespace meshloom::train
