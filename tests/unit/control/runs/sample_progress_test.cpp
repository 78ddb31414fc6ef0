// SPDX-License-Identifier: Apache-2.0
// Stop strings in the text of a model with a tokenizer.
#include "daemon/control/runs/sample_progress.h"

#include <gtest/gtest.h>

namespace meshloom::control {
namespace {

/// A token is a piece of text, of which some end inside a character.
class PieceTokenizer final : public text::Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  using Tokenizer::decode;
  using Tokenizer::encode;
  void encode(std::string_view, bool, text::WordCache&, text::Budget&,
              std::vector<text::TokenId>&) const override {}
  /// A character that is not whole at the end is U+FFFD; a blank in front of a text goes.
  std::string decode(std::span<const text::TokenId> tokens, bool, text::Budget&) const override {
    std::string text;
    for (const text::TokenId token : tokens) text += pieces_.at(static_cast<std::size_t>(token));
    if (text.starts_with(' ')) text.erase(0, 1);
    if (text.ends_with('\xC3')) text.replace(text.size() - 1, 1, "\xEF\xBF\xBD");
    return text;
  }
  text::TokenId end() const override { return static_cast<text::TokenId>(pieces_.size()); }
  std::optional<text::TokenId> find(std::string_view) const override { return std::nullopt; }

 private:
  std::vector<std::string> pieces_;
};

class StopStringsTest : public ::testing::Test {
 protected:
  /// Sequence 0 draws the pieces behind the prompt one after the other; the last one is its last
  /// token of `finish`.
  void draw(const std::vector<std::string>& stops, const std::vector<std::string>& pieces,
            v1::FinishReason finish = v1::FINISH_REASON_LENGTH) {
    SampleProgress::Shape shape;
    shape.seeds = {1, 2};
    shape.tokenizer = std::make_shared<PieceTokenizer>(pieces);
    shape.stop_strings = stops;
    SampleProgress progress(shape);
    progress.follow(0, prompt_);
    for (std::size_t i = prompt_.size(); i < pieces.size(); ++i) {
      DrawnToken token;
      token.id = static_cast<std::int64_t>(i);
      if (i + 1 == pieces.size()) token.finish = finish;
      const bool stopped = progress.stopped(0);
      EXPECT_EQ(progress.add(token), !stopped) << i;
    }
    stopped_ = progress.stopped(0);
    EXPECT_FALSE(progress.stopped(1)) << "each sequence by itself";
    told_ = *progress.after(0, 0);
    tokens_ = progress.result()->sample().sequences(0).token_ids_size();
    EXPECT_EQ(progress.result()->sample().sequences(0).finish_reason(), told_.finish_reason());
    EXPECT_EQ(progress.result()->sample().sequences(0).text(), told_.text());
    EXPECT_TRUE(progress.result()->sample().sequences(1).has_text());
  }
  std::vector<std::int64_t> prompt_;
  bool stopped_ = false;
  v1::SampledTokens told_;
  int tokens_ = 0;
};

TEST_F(StopStringsTest, AcrossTokensAndInsideOne) {
  draw({"END"}, {"one", " E", "N", "D two", " three"});
  EXPECT_TRUE(stopped_);
  EXPECT_EQ(told_.text(), "one ");
  EXPECT_EQ(told_.finish_reason(), "stop_string");
  EXPECT_EQ(tokens_, 4) << "the one that completes it is the last";
  draw({"END"}, {"aENDb", "c"});
  EXPECT_EQ(told_.text(), "a");
  EXPECT_EQ(tokens_, 1) << "at the first token";
}

TEST_F(StopStringsTest, WhatIsNoneIsToldWithTheTokenThatShowsIt) {
  draw({"END"}, {"E", "N", "x", "EN"});
  EXPECT_FALSE(stopped_);
  EXPECT_EQ(told_.text(), "ENxEN");
  EXPECT_EQ(told_.finish_reason(), "length");
}

TEST_F(StopStringsTest, ThatBeginWithTheBlankOfTheFirstToken) {
  prompt_ = {0};
  draw({" blue"}, {" red", " blue", " fox"});
  EXPECT_TRUE(stopped_);
  EXPECT_EQ(tokens_, 1);
  EXPECT_EQ(told_.text(), "");
  draw({}, {" red", " blue", " fox"});
  EXPECT_EQ(told_.text(), " blue fox");
}

TEST_F(StopStringsTest, BesideCharactersOfSeveralTokens) {
  draw({"é!"}, {"caf", "\xC3", "\xA9", "?", "\xC3", "\xA9!", "x"});
  EXPECT_TRUE(stopped_);
  EXPECT_EQ(told_.text(), "café?");
  EXPECT_EQ(tokens_, 6);
  draw({"!"}, {"\xC3", "\xA9!"});
  EXPECT_EQ(told_.text(), "é");
}

TEST_F(StopStringsTest, TheLongestOfThoseThatAreCompleteAndTheReasonOfTheLastToken) {
  draw({"END", "THE END"}, {"x THE", " END"});
  EXPECT_EQ(told_.text(), "x ");
  EXPECT_EQ(told_.finish_reason(), "stop_string") << "before the length";
  draw({"END"}, {"x", "END"}, v1::FINISH_REASON_CONTEXT);
  EXPECT_EQ(told_.finish_reason(), "stop_string") << "before the context";
  draw({"END"}, {"x", "EN"}, v1::FINISH_REASON_CONTEXT);
  EXPECT_EQ(told_.finish_reason(), "context");
  draw({"END"}, {"x", "END"}, v1::FINISH_REASON_EOS);
  EXPECT_EQ(told_.text(), "x");
  EXPECT_EQ(told_.finish_reason(), "eos");
}

}  // namespace
}  // namespace meshloom::control
