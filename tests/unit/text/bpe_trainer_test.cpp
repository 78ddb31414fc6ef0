// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/bpe_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "daemon/text/bpe.h"
#include "daemon/text/split_scanners.h"
#include "kernels/base/error.h"
#include "tests/unit/text/golden_file.h"

namespace meshloom::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::vector<std::string> merges_of(const TrainedBpe& trained) {
  std::vector<std::string> merges;
  const auto token = [&](TokenId id) { return trained.tokens.at(static_cast<std::size_t>(id)); };
  for (const auto& [first, second] : trained.merges)
    merges.push_back(token(first) + " " + token(second));
  return merges;
}

TEST(BpeTrainer, TakesTheMostFrequentPairAndOfEqualOnesThatOfTheLowestIds) {
  // (a b) 5 times; then (ab c) 4 times, and (d e) as often: d and e are the lower ids but for ab,
  // which is new.
  const std::vector<CountedWord> words = {{"abc", 4}, {"ab", 1}, {"de", 4}};
  BpeTraining training{.vocab_size = 256 + 3};
  const TrainedBpe trained = train_bpe(words, training);
  EXPECT_THAT(merges_of(trained), ElementsAre("a b", "d e", "ab c"));
  EXPECT_EQ(trained.text_tokens, 4 + 1 + 4);
}

TEST(BpeTrainer, OverlappingPairsAreMergedFromTheLeft) {
  const std::vector<CountedWord> words = {{"aaaaa", 10}};
  const TrainedBpe trained = train_bpe(words, {.vocab_size = 256 + 100});
  EXPECT_THAT(merges_of(trained), ElementsAre("a a", "aa a", "aa aaa"));
  EXPECT_EQ(trained.text_tokens, 10);
}

TEST(BpeTrainer, TheOrderOfWordsDoesNotMatter) {
  std::mt19937 random(7);
  std::vector<std::string> texts;
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (unsigned n = 1 + random() % 12; n > 0; --n) text += static_cast<char>('a' + random() % 4);
    texts.push_back(text);
  }
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  std::vector<CountedWord> words;
  for (const std::string& text : texts)
    words.push_back({text, static_cast<std::int64_t>(1 + random() % 3)});
  const TrainedBpe first = train_bpe(words, {.vocab_size = 600});
  EXPECT_GT(first.merges.size(), 100u);
  std::shuffle(words.begin(), words.end(), random);
  const TrainedBpe second = train_bpe(words, {.vocab_size = 600});
  EXPECT_EQ(first.tokens, second.tokens);
  EXPECT_EQ(first.merges, second.merges);
  EXPECT_EQ(first.text_tokens, second.text_tokens);
}

TEST(BpeTrainer, LearnsWhatThePackageLearns) {
  const Json golden = golden_file("trained");
  const auto text = golden["text"].get<std::string>();
  std::map<std::string, std::int64_t> counts;
  scan(SplitPattern::kGpt2, {text}, [&](const Piece& piece) { ++counts[std::string(piece.text)]; });
  std::vector<CountedWord> words;
  for (const auto& [word, count] : counts) words.push_back({word, count});
  for (const Json& known : golden["cases"]) {
    const BpeTraining training{.vocab_size = known["vocab_size"],
                               .special = golden["special"],
                               .min_frequency = known["min_frequency"]};
    SCOPED_TRACE(known["vocab_size"].dump());
    const TrainedBpe trained = train_bpe(words, training);
    EXPECT_EQ(trained.tokens, known["tokens"].get<std::vector<std::string>>());
    EXPECT_EQ(merges_of(trained), known["merges"].get<std::vector<std::string>>());
  }
}

TEST(BpeTrainer, ATextWithTooFewPairsMakesFewerTokens) {
  const TrainedBpe trained = train_bpe({{"ab", 1}, {"cd", 3}}, {.vocab_size = 4096});
  EXPECT_THAT(merges_of(trained), ElementsAre("c d"));
  EXPECT_EQ(trained.tokens.size(), 257u);
}

TEST(BpeTrainer, NoMergeMakesASpecialToken) {
  const TrainedBpe trained =
      train_bpe({{"abab", 9}, {"abc", 5}}, {.vocab_size = 300, .special = {"ab"}});
  for (std::size_t id = 1; id < trained.tokens.size(); ++id) EXPECT_NE(trained.tokens[id], "ab");
  EXPECT_EQ(trained.tokens.front(), "ab");
}

std::string refusal(const BpeTraining& training) {
  try {
    train_bpe({{"ab", 2}}, training);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(BpeTrainer, RefusesWhatNoVocabularyCanBe) {
  EXPECT_THAT(refusal({.vocab_size = 255}), HasSubstr("at least 256 are needed"));
  EXPECT_THAT(refusal({.vocab_size = 256, .special = {"<s>"}}),
              HasSubstr("at least 257 are needed: 256 bytes and 1 special tokens"));
  EXPECT_THAT(refusal({.vocab_size = kMostTokens}), HasSubstr("at most"));
  const auto special = [](std::vector<std::string> tokens) {
    return refusal({.vocab_size = 300, .special = std::move(tokens)});
  };
  EXPECT_THAT(special({""}), HasSubstr("is empty"));
  EXPECT_THAT(special({"a"}), HasSubstr("is a byte of the alphabet"));
  EXPECT_THAT(special({"\xFF\xFE"}), HasSubstr("is no UTF-8"));
  EXPECT_THAT(special({std::string(257, 'x')}), HasSubstr("has 257 bytes"));
  EXPECT_THAT(special({"<s>", "<s>"}), HasSubstr("is given twice"));
  EXPECT_EQ(special({"<s>", "\u6587"}), "");
}

TEST(BpeTrainer, ProgressEndsTheWork) {
  struct Stop {};
  EXPECT_THROW(train_bpe({{"abcabc", 5}}, {.vocab_size = 300},
                         [](std::int64_t tokens) {
                           if (tokens > 256) throw Stop();
                         }),
               Stop);
}

}  // namespace
}  // namespace meshloom::text
