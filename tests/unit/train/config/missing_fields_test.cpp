// SPDX-License-Identifier: Apache-2.0
// What a config lacks is told at once.
#include "daemon/train/config/missing_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/train/data/text_job_test.h"

namespace meshloom::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MissingFieldsTest : public TextJobTest {
 protected:
  void SetUp() override {
    write_bert("BertModel");
    folder_.write_text("text/a.txt", std::string(500, 'a'));
  }
  void write_bert(const std::string& architecture) const {
    folder_.write_text("model/config.json",
                       R"({"model_type": "bert", "architectures": [")" + architecture + R"("],
              "vocab_size": 40, "hidden_size": 24, "intermediate_size": 40,
              "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 16,
              "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
              "initializer_range": 0.1})");
  }
};

TEST_F(MissingFieldsTest, OneRefusalNamesThemAll) {
  const std::string text = refused_when([](auto& c) { c.mutable_training()->clear_steps(); });
  EXPECT_THAT(text, HasSubstr("FIELDS_MISSING run.model.fresh_head: 4 fields are missing: "));
  for (const char* field : {"run.model.fresh_head (", "run.training.steps (",
                            "run.data.tokenizer (", "run.data.masked_lm.mask_token ("})
    EXPECT_THAT(text, HasSubstr(field));
  EXPECT_THAT(text, Not(HasSubstr("global_batch_size")));
}

TEST_F(MissingFieldsTest, WhatIsGivenIsNotAskedFor) {
  const std::string text = refused_when([](auto& c) {
    c.mutable_model()->set_fresh_head(true);
    c.mutable_data()->mutable_masked_lm()->set_mask_token(5);
    c.mutable_data()->clear_path();
    c.mutable_training()->clear_global_batch_size();
  });
  EXPECT_THAT(text, HasSubstr("2 fields are missing: run.training.global_batch_size ("));
  EXPECT_THAT(text, HasSubstr("run.data.path ("));
}

TEST_F(MissingFieldsTest, ASingleOneIsToldByWhoNeedsIt) {
  write_bert("BertForMaskedLM");
  const std::string text =
      refused_when([](auto& c) { c.mutable_data()->mutable_masked_lm()->set_mask_token(5); });
  EXPECT_THAT(text, HasSubstr("TOKENIZER_NEEDED"));
  EXPECT_THAT(refused_when([](auto& c) {
                c.mutable_data()->set_tokenizer("bytes");
                c.mutable_model()->clear_config();
                c.mutable_model()->set_preset("byte_gpt_tiny");
                c.mutable_training()->clear_steps();
              }),
              HasSubstr("run.training.steps: must be at least 1"));
}

TEST_F(MissingFieldsTest, AModelThatIsNotThereIsToldAsItIs) {
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_model()->set_config("nowhere.json"); }),
              AllOf(HasSubstr("nowhere.json"), Not(HasSubstr("FIELDS_MISSING"))));
}

}  // namespace
}  // namespace meshloom::train
