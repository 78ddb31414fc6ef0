// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/document_encoder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/text/byte_tokenizer.h"
#include "daemon/text/pipeline_tokenizer.h"
#include "daemon/text/sentencepiece.h"
#include "daemon/text/text_mode.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/text/golden_file.h"
#include "tests/unit/text/hex.h"

namespace meshloom::text {
namespace {

/// The tokens of all documents of a folder.
std::vector<TokenId> encode(const std::filesystem::path& folder, const Tokenizer& tokenizer,
                            const EncodeOptions& options, TokenizeSummary* summary = nullptr) {
  std::vector<TokenId> tokens;
  const TokenizeSummary made = encode_documents(
      find_document_files(folder), tokenizer, options, [&](const std::vector<TokenId>& part) {
        tokens.insert(tokens.end(), part.begin(), part.end());
      });
  if (summary) *summary = made;
  return tokens;
}

class DocumentTemplate : public testing::TestWithParam<const char*> {};

TEST_P(DocumentTemplate, StandsAroundEveryDocumentAsAroundAPrompt) {
  const auto tokenizer =
      read_tokenizer_json(golden_file(GetParam()).at("tokenizer").dump(), GetParam());
  const Template around = tokenizer.around();
  ASSERT_FALSE(around.before.empty()) << "the test would show nothing";
  const test::TempFolder folder;
  const std::vector<std::string> texts = {"the fox", "a second text,", "and a third"};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    folder.write("text/" + std::to_string(i) + ".txt", texts[i]);
    folder.write("text/" + std::to_string(i) + ".jsonl",
                 nlohmann::json{{"text", texts[i]}}.dump() + "\n");
  }
  for (const int threads : {1, 3}) {
    EncodeOptions options{.add_special_tokens = true, .threads = threads};
    std::vector<TokenId> expected;
    for (const std::string& text : texts)
      for (int kind = 0; kind < 2; ++kind)
        for (const TokenId token : tokenizer.encode(text, true)) expected.push_back(token);
    EXPECT_EQ(encode(folder / "text", tokenizer, options), expected);
  }
}

TEST_P(DocumentTemplate, StandsOnceAroundADocumentThatIsReadInParts) {
  const auto tokenizer =
      read_tokenizer_json(golden_file(GetParam()).at("tokenizer").dump(), GetParam());
  std::string text;
  while (text.size() < (std::size_t{3} << 20)) text += "the fox asks\r\nwhat they said\r";
  const test::TempFolder folder;
  folder.write("text/a.txt", "\xEF\xBB\xBF" + text);
  TokenizeSummary summary;
  const EncodeOptions options{.add_special_tokens = true, .threads = 2};
  EXPECT_EQ(encode(folder / "text", tokenizer, options, &summary) ==
                tokenizer.encode(read_text_mode(text), true),
            true);
  EXPECT_EQ(summary.documents, 1);
  EXPECT_EQ(summary.bytes, read_text_mode(text).size());
}

INSTANTIATE_TEST_SUITE_P(Kinds, DocumentTemplate, testing::Values("llama3", "bert", "roberta"));

TEST(DocumentEncoder, AnEndThatTheTemplateHasIsNotGivenTwice) {
  const auto tokenizer = read_tokenizer_json(golden_file("bert").at("tokenizer").dump(), "bert");
  const TokenId begin = *tokenizer.find("[CLS]"), end = *tokenizer.find("[SEP]");
  const test::TempFolder folder;
  folder.write("text/a.txt", "the fox");
  EncodeOptions options{.add_special_tokens = true, .end = end};
  const std::vector<TokenId> around = tokenizer.encode("the fox", true);
  ASSERT_EQ(around.front(), begin);
  ASSERT_EQ(around.back(), end);
  EXPECT_EQ(encode(folder / "text", tokenizer, options), around);
  options.end = 9999;
  std::vector<TokenId> longer = around;
  longer.push_back(9999);
  EXPECT_EQ(encode(folder / "text", tokenizer, options), longer) << "another end follows";
  options.add_special_tokens = false;
  options.end = end;
  EXPECT_EQ(encode(folder / "text", tokenizer, options),
            std::vector<TokenId>(around.begin() + 1, around.end()));
}

TEST(DocumentEncoder, ATokenizerModelHasItsTemplateToo) {
  const auto tokenizer = read_sentencepiece(bytes_of(golden_file("sentencepiece_bpe").at("model")),
                                            {.bos = true, .eos = true}, "tokenizer.model");
  const Template around = tokenizer->around();
  const std::vector<TokenId> empty = tokenizer->encode("", true);
  EXPECT_EQ(around.before.size() + around.after.size(), 2u);
  EXPECT_EQ(empty, (std::vector<TokenId>{around.before[0], around.after[0]}));
}

TEST(DocumentEncoder, BytesStayAsTheyAreAndHaveNoTemplate) {
  const test::TempFolder folder;
  folder.write("text/a.txt",
               "\xEF\xBB\xBF"
               "a\r\n");
  const EncodeOptions options{.add_special_tokens = true};
  EXPECT_EQ(encode(folder / "text", ByteTokenizer(), options),
            (std::vector<TokenId>{0xEF, 0xBB, 0xBF, 'a', '\r', '\n'}));
}

}  // namespace
}  // namespace meshloom::text
