// SPDX-License-Identifier: Apache-2.0
// Texts that are divided where text_cuts says so have the tokens of the whole.
#include "daemon/text/text_cuts.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "daemon/text/byte_tokenizer.h"
#include "daemon/text/document_encoder.h"
#include "daemon/text/json_part.h"
#include "daemon/text/pipeline_tokenizer.h"
#include "tests/support/reason_of.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/text/golden_file.h"

namespace meshloom::text {
namespace {

nlohmann::json golden_tokenizer(const std::string& name) {
  return golden_file(name).at("tokenizer");
}

/// Words, white space, marks, other scripts, added tokens and bytes that are no UTF-8, in any
/// order.
std::string random_text(std::mt19937& random, std::size_t bytes) {
  static const std::vector<std::string> parts = {"a",
                                                 "The",
                                                 "word",
                                                 "it's",
                                                 "WE'LL",
                                                 "'s",
                                                 "'",
                                                 "1",
                                                 "2024",
                                                 "3.14",
                                                 " ",
                                                 " ",
                                                 " ",
                                                 "  ",
                                                 "\n",
                                                 "\n",
                                                 "\n\n",
                                                 "\r\n",
                                                 "\t",
                                                 ".",
                                                 ",",
                                                 "!?",
                                                 "(",
                                                 "\xE3\x80\x82",
                                                 "\xE4\xB8\xAD\xE6\x96\x87",
                                                 "\xC3\x84pfel",
                                                 "\xCC\x88",
                                                 "e\xCC\x81",
                                                 "\xC5\xBF",
                                                 "\xC2\xA0",
                                                 "\xE2\x80\x83",
                                                 "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB",
                                                 "\xFF",
                                                 "\xE4\xB8",
                                                 "\xC2\xA8",
                                                 "<|endoftext|>",
                                                 "<s>",
                                                 "<mask>",
                                                 "<tool>",
                                                 "[WORD]",
                                                 "[MASK]",
                                                 "\xE2\x96\x81",
                                                 "\xC4\xB0",
                                                 "\xEA\xB0\x80",
                                                 "\xE1\x85\xA1"};
  std::string text;
  while (text.size() < bytes) text += parts[random() % parts.size()];
  return text;
}

/// All places, from the last one on.
std::vector<std::size_t> all_cuts(std::string_view text, const TextCuts& cuts) {
  std::vector<std::size_t> places;
  for (std::size_t at = text.size() - 1; at > 0; --at) {
    bool found = false;
    // As much of what follows as the character there has.
    for (std::size_t more = 1; more <= 4 && at + more <= text.size(); ++more)
      found = found || last_cut(text.substr(0, at + more), at - 1, cuts) == at;
    if (found) places.push_back(at);
  }
  return places;
}

class CutTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(CutTokenizer, PartsHaveTheTokensOfTheWhole) {
  const auto tokenizer = read_tokenizer(golden_tokenizer(GetParam()), GetParam());
  ASSERT_TRUE(tokenizer.cuts().before_blank);
  std::mt19937 random(7);
  WordCache cache;
  std::size_t places = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::string text = random_text(random, 1 + random() % 200);
    const std::vector<TokenId> whole = tokenizer.encode(text, false);
    for (const std::size_t at : all_cuts(text, tokenizer.cuts())) {
      std::vector<TokenId> parts;
      tokenizer.encode(std::string_view(text).substr(0, at), false, cache, parts);
      tokenizer.encode(std::string_view(text).substr(at), false, cache, parts);
      ASSERT_EQ(parts, whole) << at << " of " << text;
      ++places;
    }
  }
  EXPECT_GT(places, 500u);
}

TEST_P(CutTokenizer, AFileIsReadInPartsWithTheTokensOfTheWhole) {
  const auto tokenizer = read_tokenizer(golden_tokenizer(GetParam()), GetParam());
  std::mt19937 random(11);
  const std::string text = random_text(random, (std::size_t{3} << 20) + 17);
  const test::TempFolder folder;
  EncodeOptions options;
  options.threads = 3;
  options.end = 99999;
  options.reading.keeps_bytes = true;
  std::vector<TokenId> tokens;
  int calls = 0;
  const TokenizeSummary summary =
      encode_documents(find_document_files(folder.write("a.txt", text)), tokenizer, options,
                       [&](const std::vector<TokenId>& part) {
                         ++calls;
                         tokens.insert(tokens.end(), part.begin(), part.end());
                       });
  EXPECT_GE(calls, 3);
  EXPECT_EQ(summary.documents, 1);
  EXPECT_EQ(summary.replaced_documents, 1);
  EXPECT_EQ(summary.bytes, text.size());
  std::vector<TokenId> whole = tokenizer.encode(text, false);
  whole.push_back(99999);
  EXPECT_EQ(tokens == whole, true) << tokens.size() << " and " << whole.size();
}

INSTANTIATE_TEST_SUITE_P(Kinds, CutTokenizer,
                         testing::Values("gpt2", "llama3", "qwen2", "roberta", "bert", "bert_cased",
                                         "compatible", "unknown", "renumbered"));

TextCuts cuts_of(const nlohmann::json& json) { return text_cuts(JsonPart(json, "test")); }

TEST(TextCuts, AreNoneWhereAPartIsNotKnownToAllowThem) {
  for (const char* name : {"gpt4o", "starcoder", "llama2", "mapped", "unigram", "words"})
    EXPECT_FALSE(cuts_of(golden_tokenizer(name)).any()) << name;
  EXPECT_TRUE(cuts_of(golden_tokenizer("llama3")).after_newline);
  EXPECT_TRUE(cuts_of(golden_tokenizer("qwen2")).after_newline);
  EXPECT_FALSE(cuts_of(golden_tokenizer("bert")).after_newline);
  EXPECT_TRUE(ByteTokenizer().cuts().anywhere);
}

TEST(TextCuts, ACharacterThatSplitsAllowsThemBesideItself) {
  const auto split_at = [](const std::string& delimiter) {
    nlohmann::json json = golden_tokenizer("words");
    json["pre_tokenizer"] = {{"type", "CharDelimiterSplit"}, {"delimiter", delimiter}};
    return cuts_of(json);
  };
  EXPECT_TRUE(split_at(" ").before_blank);
  EXPECT_FALSE(split_at(" ").after_newline);
  EXPECT_TRUE(split_at("\n").after_newline);
  EXPECT_FALSE(split_at("x").any());
  for (const char* type : {"UnicodeScripts", "FixedLength"}) {
    nlohmann::json json = golden_tokenizer("bert");
    json["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers", {{{"type", type}}, {{"type", "Whitespace"}}}}};
    EXPECT_FALSE(cuts_of(json).any()) << type;
  }
}

TEST(TextCuts, AddedTokensThatReachAcrossAllowNone) {
  const auto with_token = [](const std::string& content, const char* flag) {
    nlohmann::json json = golden_tokenizer("gpt2");
    nlohmann::json token = {{"id", 0},         {"content", content}, {"single_word", false},
                            {"lstrip", false}, {"rstrip", false},    {"normalized", false},
                            {"special", false}};
    if (*flag != '\0') token[flag] = true;
    json["added_tokens"].push_back(token);
    return cuts_of(json);
  };
  EXPECT_TRUE(with_token("word", "").after_newline);
  EXPECT_TRUE(with_token("    ", "").before_blank) << "blanks behind a letter are on one side";
  EXPECT_FALSE(with_token("two words", "").any());
  EXPECT_FALSE(with_token(" ", "single_word").any());
  EXPECT_FALSE(with_token("word", "rstrip").before_blank);
  EXPECT_FALSE(with_token("word", "lstrip").after_newline);
  EXPECT_TRUE(with_token("<mask>", "lstrip").after_newline);
}

TEST(TextCuts, TextWithoutAPlaceIsReadWholeAndRefusedWhenItIsTooLong) {
  const test::TempFolder folder;
  const auto tokenizer = read_tokenizer(golden_tokenizer("bert"), "bert");
  std::size_t tokens = 0;
  const auto count = [&](const std::vector<TokenId>& part) { tokens += part.size(); };
  const std::string word(std::size_t{3} << 20, 'x');
  encode_documents(find_document_files(folder.write("a.txt", word)), tokenizer, {}, count);
  EXPECT_EQ(tokens, 1u) << "a word that is too long is one unknown token";
  const auto large = folder.write("b.txt", word);
  std::filesystem::resize_file(large, kMostDocumentBytes + (std::size_t{2} << 20));
  EXPECT_EQ(
      test::reason_of([&] { encode_documents(find_document_files(large), tokenizer, {}, count); }),
      "FILE_TOO_LARGE");
}

}  // namespace
}  // namespace meshloom::text
