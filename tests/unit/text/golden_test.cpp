// SPDX-License-Identifier: Apache-2.0
// Tokenizers of every kind against what the `tokenizers` package makes of the same texts.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "daemon/base/input_file.h"
#include "daemon/text/pipeline_tokenizer.h"
#include "tests/support/source_folder.h"
#include "tests/unit/text/hex.h"

namespace meshloom::text {
namespace {

const std::filesystem::path kFolder = test::source_file("tests/golden/tokenizer");

class GoldenTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTokenizer, EncodesAndDecodesAsThePackageDoes) {
  const base::InputFile file(kFolder / (std::string(GetParam()) + ".json"));
  const auto golden = nlohmann::json::parse(file.read_text(1 << 20));
  const auto tokenizer = read_tokenizer_json(golden.at("tokenizer").dump(), GetParam());
  ASSERT_GE(golden.at("cases").size(), 40u);
  WordCache cache;
  for (const auto& one : golden.at("cases")) {
    const std::string bytes = bytes_of(one.at("bytes"));
    const std::string text = one.at("text");
    const std::vector<TokenId> expected = one.at("tokens"), around = one.at("around");
    std::vector<TokenId> tokens;
    tokenizer.encode(bytes, false, cache, tokens);
    EXPECT_EQ(tokens, expected) << bytes;
    EXPECT_EQ(tokenizer.encode(bytes, true), around) << bytes;
    EXPECT_EQ(tokenizer.decode(expected, true), text) << bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, GoldenTokenizer,
                         testing::Values("gpt2", "roberta", "llama3", "qwen2", "gpt4o", "starcoder",
                                         "bert", "bert_cased", "unigram", "mapped", "compatible",
                                         "llama2", "unknown", "words", "scripts", "delimited",
                                         "renumbered"));

}  // namespace
}  // namespace meshloom::text
