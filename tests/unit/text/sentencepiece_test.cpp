// SPDX-License-Identifier: Apache-2.0
// tokenizer.model against what the `sentencepiece` package makes of the same texts.
#include "daemon/text/sentencepiece.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "daemon/base/input_file.h"
#include "daemon/text/character_map.h"
#include "daemon/text/tokenizer_folder.h"
#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"

namespace meshloom::text {
namespace {

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

nlohmann::json golden_of(const std::string& name) {
  const base::InputFile file(std::filesystem::path(MESHLOOM_GOLDEN_DIR "/tokenizer") /
                             (name + ".json"));
  return nlohmann::json::parse(file.read_text(1 << 20));
}

class SentencePiece : public testing::TestWithParam<const char*> {};

TEST_P(SentencePiece, EncodesAndDecodesAsThePackageDoes) {
  const auto golden = golden_of(GetParam());
  const auto tokenizer = read_sentencepiece(bytes_of(golden.at("model")), {}, GetParam());
  ASSERT_GE(golden.at("cases").size(), 30u);
  for (const auto& one : golden.at("cases")) {
    const std::string bytes = bytes_of(one.at("bytes"));
    const std::vector<TokenId> expected = one.at("tokens");
    EXPECT_EQ(tokenizer->encode(bytes, true), expected) << bytes;
    EXPECT_EQ(tokenizer->decode(expected, true), one.at("text").get<std::string>()) << bytes;
  }
}

TEST_P(SentencePiece, SpecialPiecesStandAroundAndInTexts) {
  const auto golden = golden_of(GetParam());
  const auto tokenizer =
      read_sentencepiece(bytes_of(golden.at("model")), {.bos = true, .eos = true}, GetParam());
  const std::vector<TokenId> plain = tokenizer->encode("in", false);
  std::vector<TokenId> around = tokenizer->encode("in", true);
  ASSERT_EQ(around.size(), plain.size() + 2);
  EXPECT_EQ(around.front(), tokenizer->find("<s>"));
  EXPECT_EQ(around.back(), tokenizer->find("</s>"));
  EXPECT_EQ(tokenizer->decode(around, true), "in");
  around.erase(around.begin());
  EXPECT_EQ(tokenizer->encode("in</s>", false), around);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SentencePiece,
                         testing::Values("sentencepiece_unigram", "sentencepiece_bpe"));

TEST(SentencePieceFile, IsTheTokenizerOfItsFolder) {
  const auto golden = golden_of("sentencepiece_bpe");
  const test::TempFolder folder;
  folder.write("tokenizer.model", bytes_of(golden.at("model")));
  const FolderTokenizer opened = open_tokenizer(folder.path());
  EXPECT_EQ(opened.eos, opened.tokenizer->find("</s>"));
  EXPECT_EQ(opened.tokenizer->encode("in", true).front(), opened.tokenizer->find("<s>"));
  folder.write("added_tokens.json", R"({"</s>": 2})");
  EXPECT_NO_THROW(open_tokenizer(folder.path()));
  folder.write("added_tokens.json", R"({"<extra>": 700})");
  EXPECT_THROW(open_tokenizer(folder.path()), Unimplemented);
  std::filesystem::remove(folder / "added_tokens.json");
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "XLMRobertaTokenizer"})");
  EXPECT_THROW(open_tokenizer(folder.path()), Unimplemented);
}

TEST(SentencePieceFile, ThatIsBrokenIsRefused) {
  const std::string model = bytes_of(golden_of("sentencepiece_unigram").at("model"));
  for (const std::string& bytes :
       {std::string(), std::string("no model"), model.substr(0, model.size() - 1)})
    EXPECT_THROW(read_sentencepiece(bytes, {}, "x"), Error) << bytes.size();
}

TEST(CharacterMaps, ThatAreBrokenAreRefused) {
  EXPECT_EQ(CharacterMap("").longest("a").length, 0u);
  for (const std::string& bytes :
       {std::string("abc"), std::string("\x08\0\0\0abcd", 8), std::string("\x04\0\0\0abcdx", 9)})
    EXPECT_THROW(CharacterMap{bytes}, InvalidArgument) << bytes.size();
  // An offset far behind the only unit.
  const CharacterMap wild(std::string("\x04\0\0\0\xFF\xFF\xFF\x7F\0", 9));
  EXPECT_THROW(wild.longest("a"), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::text
