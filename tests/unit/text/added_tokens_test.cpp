// SPDX-License-Identifier: Apache-2.0
// Added tokens whose ids are not those that the vocabulary leaves them. Expected values are those
// of the `tokenizers` package.
#include "daemon/text/added_tokens.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/text/pipeline_tokenizer.h"

namespace meshloom::text {
namespace {

using Json = nlohmann::json;

/// Words between white space with these added tokens, whose flags are false where not given.
PipelineTokenizer words(const Json& vocab, const std::vector<Json>& added,
                        const Json& normalizer = nullptr) {
  Json tokens = Json::array();
  for (const Json& token : added) {
    tokens.push_back({{"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", false}});
    tokens.back().update(token);
  }
  const Json json = {{"version", "1.0"},
                     {"added_tokens", tokens},
                     {"normalizer", normalizer},
                     {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
                     {"model", {{"type", "WordLevel"}, {"vocab", vocab}, {"unk_token", "[UNK]"}}}};
  return read_tokenizer(json, "test");
}

const Json kThree = {{"a", 0}, {"b", 1}, {"[UNK]", 2}};
using Ids = std::vector<TokenId>;

TEST(AddedTokenIds, FollowTheVocabularyInTheOrderOfTheFile) {
  const auto holes =
      words(kThree, {{{"id", 300}, {"content", "X"}}, {{"id", 5}, {"content", "Y"}}});
  EXPECT_EQ(holes.encode("a X Y b", false), (Ids{0, 3, 4, 1}));
  EXPECT_EQ(holes.end(), 5);
  EXPECT_EQ(holes.decode(Ids{3, 4, 5, 300}, false), "X Y");
  const auto backwards =
      words(kThree, {{{"id", 4}, {"content", "X"}}, {{"id", 3}, {"content", "Y"}}});
  EXPECT_EQ(backwards.encode("a X Y b", false), (Ids{0, 3, 4, 1}));
  const auto empty = words(kThree, {{{"id", 3}, {"content", ""}}, {{"id", 4}, {"content", "X"}}});
  EXPECT_EQ(empty.encode("X", false), Ids{3}) << "a token without text is none";
}

TEST(AddedTokenIds, AreThoseOfTheVocabularyWhateverTheFileSays) {
  const auto tokenizer = words(
      kThree, {{{"id", 7}, {"content", "a"}, {"special", true}}, {{"id", 0}, {"content", "X"}}});
  EXPECT_EQ(tokenizer.encode("a X b", false), (Ids{0, 3, 1}));
  EXPECT_EQ(tokenizer.find("a"), 0);
  EXPECT_EQ(tokenizer.decode(Ids{0, 1, 3}, true), "b X") << "that of the vocabulary is special now";
}

TEST(AddedTokenIds, CountTheTokensOfAVocabularyWithHoles) {
  const auto tokenizer = words({{"a", 0}, {"b", 4}, {"[UNK]", 7}}, {{{"id", 9}, {"content", "X"}}});
  EXPECT_EQ(tokenizer.encode("a b X", false), (Ids{0, 4, 3}));
  EXPECT_EQ(tokenizer.end(), 8);
  // They may meet an id that is taken, whose text they are decoded as from then on.
  const auto met = words({{"a", 0}, {"b", 3}, {"[UNK]", 4}},
                         {{{"id", 9}, {"content", "X"}}, {{"id", 9}, {"content", "Y"}}});
  EXPECT_EQ(met.encode("a b X Y", false), (Ids{0, 3, 3, 4}));
  EXPECT_EQ(met.decode(Ids{0, 3, 4}, false), "a X Y");
}

TEST(AddedTokenIds, OfTokensWithOneTextTheLastCounts) {
  const auto tokenizer = words(kThree, {{{"id", 3}, {"content", "X"}, {"special", true}},
                                        {{"id", 4}, {"content", "Y"}},
                                        {{"id", 5}, {"content", "X"}, {"lstrip", true}}});
  EXPECT_EQ(tokenizer.encode("a  X Y", false), (Ids{0, 3, 4}));
  EXPECT_EQ(tokenizer.end(), 5);
  EXPECT_EQ(tokenizer.decode(Ids{3, 4}, true), "Y") << "once special, always special";
}

TEST(AddedTokenIds, CountEveryLineOfAUnigramModel) {
  const Json json = Json::parse(R"({"version": "1.0",
    "added_tokens": [{"id": 9, "content": "X", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": false}],
    "model": {"type": "Unigram", "unk_id": 0,
              "vocab": [["<unk>", 0.0], ["a", -1.0], ["a", -2.0]]}})");
  EXPECT_EQ(read_tokenizer(json, "test").encode("aX", false).back(), 3);
}

TEST(AddedTokenIds, ATokenIsDecodedAsItsNormalForm) {
  const auto tokenizer =
      words(kThree,
            {{{"id", 3}, {"content", "Xx"}, {"normalized", true}}, {{"id", 4}, {"content", "Yy"}}},
            {{"type", "Lowercase"}});
  EXPECT_EQ(tokenizer.encode("XX xx Yy yy", false), (Ids{3, 3, 4, 2}));
  EXPECT_EQ(tokenizer.decode(Ids{3, 4}, false), "xx Yy");
  EXPECT_EQ(tokenizer.find("Xx"), 3);
}

}  // namespace
}  // namespace meshloom::text
