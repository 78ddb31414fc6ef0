// SPDX-License-Identifier: Apache-2.0
// tokenizer.model against what the `sentencepiece` package makes of the same texts.
#include "daemon/text/sentencepiece.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "daemon/text/character_map.h"
#include "daemon/text/tokenizer_folder.h"
#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/text/golden_file.h"
#include "tests/unit/text/hex.h"
#include "tests/unit/text/sentencepiece_file.h"

namespace meshloom::text {
namespace {

class SentencePiece : public testing::TestWithParam<const char*> {};

TEST_P(SentencePiece, EncodesAndDecodesAsThePackageDoes) {
  const auto golden = golden_file(GetParam());
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
  const auto golden = golden_file(GetParam());
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
  const auto golden = golden_file("sentencepiece_bpe");
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
  const std::string model = bytes_of(golden_file("sentencepiece_unigram").at("model"));
  for (const std::string& bytes :
       {std::string(), std::string("no model"), model.substr(0, model.size() - 1)})
    EXPECT_THROW(read_sentencepiece(bytes, {}, "x"), Error) << bytes.size();
}

TEST(SentencePieceFile, WithNormalFormsThatAreNoTextMakesTextOfThem) {
  for (const char kind : {kUnigramModel, kBpeModel}) {
    const auto broken = read_sentencepiece(model_of(kind, "", map_of('b', "\xF0")), {}, "x");
    EXPECT_EQ(broken->encode("ab", false), (std::vector<TokenId>{1, 0}));
    const auto cut = read_sentencepiece(model_of(kind, "", map_of(0xC3, "a")), {}, "x");
    EXPECT_THROW(cut->encode("\xC3\xA9", false), InvalidArgument);
    const auto sound = read_sentencepiece(model_of(kind, "", map_of('b', "a")), {}, "x");
    EXPECT_EQ(sound->encode("ab", false), (std::vector<TokenId>{1, 1}));
  }
}

TEST(SentencePieceFile, WithPiecesThatNoModelHasIsRefused) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::string& pieces :
       {piece_field("aa", std::numeric_limits<float>::quiet_NaN()), piece_field("aa", -kInfinity),
        piece_field("<0xZZ>", 0, kByteType), piece_field("<0x0A]", 0, kByteType),
        piece_field("<0x+1>", 0, kByteType), piece_field("<0x0a>", 0, kByteType),
        piece_field(std::string(1025, 'a'), -1)})
    for (const char kind : {kUnigramModel, kBpeModel})
      EXPECT_THROW(read_sentencepiece(model_of(kind, pieces, ""), {}, "x"), InvalidArgument);
  const auto sound =
      read_sentencepiece(model_of(kBpeModel, piece_field("<0x0A>", 0, kByteType), ""), {}, "x");
  EXPECT_EQ(sound->decode(std::vector<TokenId>{2, 1}, false), "\na");
}

TEST(CharacterMaps, ThatAreBrokenAreRefused) {
  Budget budget;
  EXPECT_EQ(CharacterMap("").longest("a", budget).length, 0u);
  for (const std::string& bytes :
       {std::string("abc"), std::string("\x08\0\0\0abcd", 8), std::string("\x04\0\0\0abcdx", 9)})
    EXPECT_THROW(CharacterMap{bytes}, InvalidArgument) << bytes.size();
  // An offset far behind the only unit.
  const CharacterMap wild(std::string("\x04\0\0\0\xFF\xFF\xFF\x7F\0", 9));
  EXPECT_THROW(wild.longest("a", budget), InvalidArgument);
  // Normal forms have a length that every character of a text can have.
  const std::string longest(4096, 'x');
  EXPECT_EQ(CharacterMap(map_of('a', longest)).longest("a", budget).normal, longest);
  EXPECT_THROW(CharacterMap(map_of('a', longest + "x")).longest("a", budget), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::text
