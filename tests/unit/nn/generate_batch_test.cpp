// SPDX-License-Identifier: Apache-2.0
// Sequences that are drawn together get, bit for bit, what each gets alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "daemon/nn/generate.h"
#include "kernels/base/error.h"
#include "tests/support/generate.h"
#include "tests/support/test_context.h"
#include "tests/unit/nn/model_test_support.h"

namespace meshloom::nn {
namespace {

using meshloom::testing::make_random_model;

// Large enough that products take the kernel of a few rows where the CPU has it, with an inner size
// that is odd and so the case that pairs of bfloat16 make difficult.
ModelConfig wide_gpt2() {
  return parse_hf_config(R"({"architectures":["GPT2LMHeadModel"],"vocab_size":301,
      "n_positions":48,"n_embd":96,"n_layer":2,"n_head":3,"n_inner":257,"bos_token_id":null,
      "eos_token_id":null})");
}
ModelConfig wide_llama() {
  return parse_hf_config(R"({"architectures":["LlamaForCausalLM"],"vocab_size":301,
      "max_position_embeddings":48,"hidden_size":96,"num_hidden_layers":2,
      "num_attention_heads":6,"num_key_value_heads":2,"intermediate_size":259,
      "bos_token_id":null,"eos_token_id":null,"rope_parameters":{"rope_type":"default",
      "rope_theta":10000.0}})");
}

struct BatchCase {
  const char* name;
  ModelConfig (*config)();
  DType dtype;
};

class GenerateBatch : public ::testing::TestWithParam<BatchCase> {
 protected:
  GenerateBatch()
      : context_([] {
          ExecutionContext::Options options;
          options.threads = {2};
          return options;
        }()),
        model_(make_random_model(context_, GetParam().config(), GetParam().dtype)) {}

  std::vector<std::int64_t> random_prompt(std::size_t length) {
    std::vector<std::int64_t> ids(length);
    for (auto& id : ids)
      id = static_cast<std::int64_t>(random_() % static_cast<std::uint32_t>(vocabulary()));
    return ids;
  }
  std::int64_t vocabulary() const { return model_->config().vocab_size; }
  std::int64_t context_length() const { return model_->config().max_position_embeddings; }

  std::vector<std::int64_t> alone(const GenerateSequence& sequence) {
    std::vector<std::int64_t> tokens;
    testing::generate(*model_, sequence.prompt, sequence.options, [&](std::int64_t token) {
      tokens.push_back(token);
      return true;
    });
    return tokens;
  }
  /// Draws them together and compares each with itself alone.
  void expect_as_alone(const std::vector<GenerateSequence>& sequences) {
    std::vector<std::vector<std::int64_t>> drawn(sequences.size());
    std::vector<bool> ended(sequences.size());
    Generation generation(*model_, sequences);
    while (!generation.done())
      for (const GeneratedToken& token : generation.advance()) {
        ASSERT_FALSE(ended[token.sequence]);
        drawn[token.sequence].push_back(token.id);
        ended[token.sequence] = token.last();
      }
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      EXPECT_EQ(drawn[i], alone(sequences[i])) << "sequence " << i << " of " << sequences.size();
      EXPECT_EQ(ended[i], sequences[i].options.max_tokens > 0);
    }
  }
  GenerateSequence sequence(std::size_t prompt, std::int64_t tokens, std::uint64_t seed) {
    GenerateSequence made{random_prompt(prompt), {}};
    made.options.max_tokens = tokens;
    made.options.sampling.seed = seed;
    return made;
  }

  testing::TestContext context_;
  std::unique_ptr<Model> model_;
  std::mt19937 random_{7};
};
INSTANTIATE_TEST_SUITE_P(
    Models, GenerateBatch,
    ::testing::Values(BatchCase{"tiny_gpt2", &meshloom::testing::tiny_gpt2, DType::kFloat32},
                      BatchCase{"tiny_llama", &meshloom::testing::tiny_llama, DType::kFloat32},
                      BatchCase{"tiny_qwen3", &meshloom::testing::tiny_qwen3, DType::kFloat32},
                      BatchCase{"tiny_gpt2_bf16", &meshloom::testing::tiny_gpt2, DType::kBFloat16},
                      BatchCase{"gpt2", &wide_gpt2, DType::kFloat32},
                      BatchCase{"llama", &wide_llama, DType::kFloat32},
                      BatchCase{"gpt2_bf16", &wide_gpt2, DType::kBFloat16},
                      BatchCase{"llama_bf16", &wide_llama, DType::kBFloat16}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(GenerateBatch, LogitsOfRowsAreThoseOfEachAlone) {
  for (const std::size_t rows : {2u, 3u, 8u, 9u, 13u}) {
    SCOPED_TRACE(rows);
    std::vector<std::unique_ptr<KvCache>> together, apart;
    std::vector<KvCache*> caches;
    for (std::size_t i = 0; i < rows; ++i) {
      const std::vector<std::int64_t> prompt = random_prompt(1 + random_() % 15);
      const Tensor ids = from_values(context_, {1, static_cast<std::int64_t>(prompt.size())},
                                     std::span<const std::int64_t>(prompt));
      for (auto* owners : {&together, &apart}) {
        owners->push_back(model_->make_cache(context_length()));
        model_->decode(ids, *owners->back());
      }
      caches.push_back(together.back().get());
    }
    for (int step = 0; step < 4; ++step) {
      const std::vector<std::int64_t> ids = random_prompt(rows);
      const std::vector<double> batch =
          model_
              ->decode(from_values(context_, {static_cast<std::int64_t>(rows), 1},
                                   std::span<const std::int64_t>(ids)),
                       caches)
              .to_vector();
      for (std::size_t i = 0; i < rows; ++i) {
        const Tensor id =
            from_values(context_, {1, 1}, std::span<const std::int64_t>(ids).subspan(i, 1));
        const std::vector<double> row = model_->decode(id, *apart[i]).to_vector();
        const auto first = batch.begin() + static_cast<std::ptrdiff_t>(i * row.size());
        EXPECT_TRUE(std::equal(row.begin(), row.end(), first)) << "row " << i << ", step " << step;
      }
    }
  }
}

TEST_P(GenerateBatch, TokensAreThoseOfEachAlone) {
  for (const std::size_t count : {1u, 2u, 5u, 8u, 11u, 19u}) {
    SCOPED_TRACE(count);
    std::vector<GenerateSequence> sequences;
    for (std::size_t i = 0; i < count; ++i) {
      sequences.push_back(sequence(1 + random_() % 20, 1 + random_() % 12, 100 + i));
      if (i % 3 == 0) sequences.back().options.sampling.temperature = 0.0;
      if (i % 4 == 1) sequences.back().options.sampling.top_p = 0.9;
    }
    expect_as_alone(sequences);
  }
}

TEST_P(GenerateBatch, EachGoesOnPastItsContextOrEndsByItself) {
  const auto whole = static_cast<std::size_t>(context_length());
  std::vector<GenerateSequence> sequences{
      sequence(3, 2 * context_length(), 1), sequence(whole, 30, 2), sequence(whole - 1, 7, 3),
      sequence(1, context_length() + 5, 4), sequence(whole - 2, 30, 5)};
  for (std::size_t i = 0; i < 4; ++i) sequences[i].options.past_context = true;
  EXPECT_EQ(alone(sequences[0]).size(), static_cast<std::size_t>(2 * context_length()));
  EXPECT_EQ(alone(sequences[4]).size(), 3u);
  expect_as_alone(sequences);
}

TEST_P(GenerateBatch, ASequenceThatEndsLeavesTheOthers) {
  std::vector<GenerateSequence> sequences{sequence(4, 20, 1), sequence(9, 20, 2),
                                          sequence(2, 20, 3), sequence(2, 0, 4)};
  const std::vector<std::int64_t> first = alone(sequences[1]);
  sequences[1].options.stop_tokens = {first[6]};
  expect_as_alone(sequences);
  EXPECT_LE(alone(sequences[1]).size(), 7u);
}

TEST_P(GenerateBatch, WhatDoesNotFitIsRefused) {
  const auto a = model_->make_cache(4), b = model_->make_cache(4);
  const std::vector<KvCache*> caches{a.get(), b.get()};
  const auto ids = [&](std::int64_t rows, std::int64_t positions) {
    return meshloom::testing::random_ids(context_, rows, positions, vocabulary(), 1);
  };
  EXPECT_THROW(model_->decode(ids(3, 1), caches), InvalidArgument);
  EXPECT_THROW(model_->decode(ids(2, 2), caches), InvalidArgument);
  model_->decode(ids(1, 4), *b);
  EXPECT_THROW(model_->decode(ids(2, 1), caches), InvalidArgument) << "the second is full";
  EXPECT_EQ(a->length(), 0);
}

}  // namespace
}  // namespace meshloom::nn
