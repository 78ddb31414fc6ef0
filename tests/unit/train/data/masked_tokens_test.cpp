// SPDX-License-Identifier: Apache-2.0
// BERT's folder says which token hides others, and which are never hidden.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/text/learned_tokens.h"
#include "daemon/text/token_file.h"
#include "daemon/train/config/resolve_evaluation.h"
#include "tests/unit/train/data/text_job_test.h"

namespace meshloom::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kPad = 0, kUnknown = 1, kClass = 2, kSeparator = 3, kMaskToken = 4;

class MaskedTokensTest : public TextJobTest {
 protected:
  void SetUp() override {
    folder_.write_text("model/config.json",
                       R"({"model_type": "bert", "architectures": ["BertForMaskedLM"],
              "vocab_size": 40, "hidden_size": 24, "intermediate_size": 40,
              "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 16,
              "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
              "initializer_range": 0.1})");
    std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    for (char c = 'a'; c <= 'z'; ++c) vocabulary += std::string(1, c) + "\n";
    folder_.write_text("model/vocab.txt", vocabulary);
    folder_.write_text("model/tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
    std::string text;
    for (int i = 0; i < 100; ++i) text += "a b c d e ";
    folder_.write_text("text/a.txt", text);
  }
};

TEST_F(MaskedTokensTest, OfARealFolderAreItsTokenizers) {
  const v1::RunConfig resolved = resolve(config());
  const v1::MaskedLmConfig& masked = resolved.data().masked_lm();
  EXPECT_EQ(masked.mask_token(), kMaskToken);
  EXPECT_THAT(masked.special_tokens(), ElementsAre(kPad, kUnknown, kClass, kSeparator, kMaskToken));
  EXPECT_EQ(masked.probability(), 0.15);
  EXPECT_TRUE(resolved.data().append_eos()) << "the [SEP] of the template, once";
  EXPECT_EQ(resolved.data().document_end(), kSeparator);
  EXPECT_EQ(resolve(resolved).SerializeAsString(), resolved.SerializeAsString());
}

TEST_F(MaskedTokensTest, OfFilesOfTokensAreItsTokenizersToo) {
  folder_.write_u16("tokens.bin", std::vector<std::uint16_t>(200, 9));
  v1::RunConfig given = config();
  given.mutable_data()->set_path("tokens.bin");
  EXPECT_EQ(resolve(given).data().masked_lm().mask_token(), kMaskToken);
}

TEST_F(MaskedTokensTest, ConversationsAreNotForModelsThatLearnNoNextToken) {
  folder_.write_text("pairs.jsonl", "{\"prompt\": \"a b\", \"completion\": \"c d\"}\n");
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_data()->set_path("pairs.jsonl"); }),
              HasSubstr("run.data.chat: is for models that learn the next token"));
  std::vector<std::uint32_t> tokens(60, 9);
  for (std::size_t i = 0; i < tokens.size(); i += 6) tokens[i] |= text::kBeginsText;
  folder_.write_llmc("chat.bin", 20240801, text::kChatVersion, tokens);
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_data()->set_path("chat.bin"); }),
              HasSubstr("run.data.path: holds conversations"));
}

TEST_F(MaskedTokensTest, WhatAJobSaysCounts) {
  v1::RunConfig given = config();
  v1::MaskedLmConfig& masked = *given.mutable_data()->mutable_masked_lm();
  masked.set_probability(0.3);
  EXPECT_EQ(resolve(given).data().masked_lm().mask_token(), kMaskToken);
  EXPECT_EQ(resolve(given).data().masked_lm().probability(), 0.3);
  masked.set_mask_token(7);
  masked.add_special_tokens(8);
  const v1::RunConfig resolved = resolve(given);
  EXPECT_EQ(resolved.data().masked_lm().mask_token(), 7);
  EXPECT_THAT(resolved.data().masked_lm().special_tokens(), ElementsAre(8, kClass, kSeparator));
}

TEST_F(MaskedTokensTest, AConfigThatWasResolvedBeforeKeepsItsList) {
  v1::RunConfig before = resolve(config());
  before.mutable_data()->mutable_masked_lm()->clear_special_tokens();
  EXPECT_THAT(resolve(before).data().masked_lm().special_tokens(), ElementsAre(kClass, kSeparator));
}

TEST_F(MaskedTokensTest, WithoutAMaskTokenTheFieldIsNeeded) {
  folder_.write_text("model/tokenizer_config.json",
                     R"({"tokenizer_class": "BertTokenizer", "mask_token": null})");
  EXPECT_THAT(refused_when([](auto&) {}), HasSubstr("run.data.masked_lm.mask_token: is needed"));
}

}  // namespace
}  // namespace meshloom::train
