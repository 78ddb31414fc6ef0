// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/stream_decoder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/text/bpe.h"
#include "daemon/text/pipeline_tokenizer.h"
#include "daemon/text/sentencepiece.h"
#include "daemon/text/stop_strings.h"
#include "tests/unit/text/golden_file.h"
#include "tests/unit/text/hex.h"

namespace meshloom::text {
namespace {

using Json = nlohmann::json;

/// Of a golden file of either kind.
std::shared_ptr<const Tokenizer> tokenizer_of(const Json& golden) {
  if (golden.contains("model")) return read_sentencepiece(bytes_of(golden.at("model")), {}, "test");
  return std::make_shared<PipelineTokenizer>(read_tokenizer(golden.at("tokenizer"), "test"));
}

std::string streamed(StreamDecoder decoder, std::span<const std::int64_t> tokens) {
  std::string text;
  for (const std::int64_t token : tokens) text += decoder.add(static_cast<TokenId>(token));
  return text + decoder.finish();
}

/// What the tokens from `prompt` on add to the text of those before them.
std::string behind(const std::shared_ptr<const Tokenizer>& tokenizer,
                   std::span<const std::int64_t> tokens, std::size_t prompt) {
  StreamDecoder decoder(tokenizer, true);
  decoder.follow(tokens.first(prompt));
  return streamed(std::move(decoder), tokens.subspan(prompt));
}

TEST(StreamDecoder, GivesWholeCharactersThatAddUpToTheText) {
  for (const char* name : {"gpt2", "llama3", "bert", "unigram", "llama2"}) {
    const Json json = golden_file(name);
    const auto tokenizer = tokenizer_of(json);
    for (const auto& one : json.at("cases")) {
      const std::vector<TokenId> tokens = one.at("tokens");
      StreamDecoder decoder(tokenizer, true);
      std::string text;
      for (const TokenId token : tokens) {
        const std::string part = decoder.add(token);
        EXPECT_TRUE(part.empty() || (part.front() & 0xC0) != 0x80) << name;
        text += part;
      }
      text += decoder.finish();
      EXPECT_EQ(text, one.at("text").get<std::string>()) << name;
    }
  }
}

TEST(StreamDecoder, GoesOnBehindBytesThatAreNoText) {
  const auto tokenizer = tokenizer_of(golden_file("gpt2"));
  const auto token_of = [&](const char* byte) {
    return tokenizer->find(to_byte_level(byte)).value();
  };
  StreamDecoder decoder(tokenizer, true);
  // So many that they are told as U+FFFD; with the next two the last of them is a character.
  for (int i = 0; i < 64; ++i) decoder.add(token_of("\xE2"));
  decoder.add(token_of("\x82"));
  decoder.add(token_of("\xAC"));
  std::string text;
  for (int i = 0; i < 200; ++i) text += decoder.add(token_of("a"));
  text += decoder.finish();
  EXPECT_GE(text.size(), 100u);
  EXPECT_EQ(text, std::string(text.size(), 'a'));
}

TEST(StreamDecoder, LeavesOutSpecialTokensAmongOthers) {
  const auto tokenizer = tokenizer_of(golden_file("gpt2"));
  StreamDecoder decoder(tokenizer, true);
  std::string text;
  for (int i = 0; i < 100; ++i)
    for (const char* token : {"<|endoftext|>", "a", "<|endoftext|>"})
      text += decoder.add(tokenizer->find(token).value());
  EXPECT_EQ(text + decoder.finish(), std::string(100, 'a'));
}

class StreamBehindAPrompt : public testing::TestWithParam<const char*> {};

TEST_P(StreamBehindAPrompt, IsWhatBothTogetherHaveBeyondThePrompt) {
  const Json json = golden_file(GetParam());
  const auto tokenizer = tokenizer_of(json);
  const auto text_of = [&](const std::vector<TokenId>& tokens) {
    return tokenizer->decode(tokens, true);
  };
  std::size_t compared = 0;
  for (const auto& one : json.at("cases")) {
    const std::vector<std::int64_t> tokens = one.at("tokens");
    const std::string whole = text_of({tokens.begin(), tokens.end()});
    for (std::size_t cut = 0; cut < tokens.size(); cut += 1 + tokens.size() / 40) {
      const std::string before =
          text_of({tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(cut)});
      if (!whole.starts_with(before)) continue;  // inside a character
      ++compared;
      ASSERT_EQ(behind(tokenizer, tokens, cut), whole.substr(before.size())) << cut << " " << whole;
    }
  }
  EXPECT_GE(compared, 500u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, StreamBehindAPrompt,
                         testing::Values("gpt2", "llama3", "qwen2", "bert", "unigram", "mapped",
                                         "llama2", "unknown", "words", "renumbered",
                                         "sentencepiece_unigram", "sentencepiece_bpe"));

/// "red", then " blue" and " fox" in the words of SentencePiece.
Json red_blue_fox() {
  return Json::parse(R"({"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
    "added_tokens": [{"id": 0, "content": "<s>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "WordLevel", "unk_token": "<s>",
              "vocab": {"<s>": 0, "\u2581red": 1, "\u2581blue": 2, "\u2581fox": 3, "\u2581": 4,
                        "<0xE2>": 5, "<0x82>": 6, "<0xAC>": 7}}})");
}

TEST(StreamDecoder, KeepsTheBlankBehindAPromptAlone) {
  const auto tokenizer =
      std::make_shared<PipelineTokenizer>(read_tokenizer(red_blue_fox(), "test"));
  const std::vector<std::int64_t> tokens = {0, 1, 2, 3};
  EXPECT_EQ(behind(tokenizer, tokens, 0), "red blue fox") << "the first of a text has none";
  EXPECT_EQ(behind(tokenizer, tokens, 1), "red blue fox") << "behind what is no text, too";
  EXPECT_EQ(behind(tokenizer, tokens, 2), " blue fox");
  EXPECT_EQ(behind(tokenizer, std::vector<std::int64_t>{0, 4, 2}, 2), " blue")
      << "the prompt's blank is the one that goes";
  // So many that are no text that what is before them counts.
  std::vector<std::int64_t> many(1000, 0);
  many.front() = 1;
  many.push_back(2);
  EXPECT_EQ(behind(tokenizer, many, 1000), " blue");
}

TEST(StreamDecoder, AStopStringThatBeginsWithABlankIsFoundBehindAPrompt) {
  StreamDecoder decoder(std::make_shared<PipelineTokenizer>(read_tokenizer(red_blue_fox(), "test")),
                        true);
  decoder.follow(std::vector<std::int64_t>{0, 1});
  StopStrings stops({" blue"});
  EXPECT_EQ(stops.add(decoder.add(2)), "");
  EXPECT_TRUE(stops.stopped());
}

TEST(StreamDecoder, ACharacterThatThePromptBeginsIsNewOnceItIsWhole) {
  for (const Json& json : {golden_file("gpt2").at("tokenizer"), red_blue_fox()}) {
    const auto tokenizer = std::make_shared<PipelineTokenizer>(read_tokenizer(json, "test"));
    const bool byte_level = json.at("model").at("type") == "BPE";
    std::vector<std::int64_t> euro;
    for (const char* byte : {"\xE2", "\x82", "\xAC"}) {
      const auto name = fmt::format("<0x{:02X}>", static_cast<unsigned char>(*byte));
      euro.push_back(tokenizer->find(byte_level ? to_byte_level(byte) : name).value());
    }
    for (const std::size_t prompt : {1u, 2u})
      EXPECT_EQ(behind(tokenizer, euro, prompt), "\xE2\x82\xAC");
    // What the prompt leaves unfinished is told as the prompt's own.
    const std::vector<std::int64_t> broken = {euro[0], euro[0], euro[1], euro[2]};
    if (byte_level) {
      EXPECT_EQ(behind(tokenizer, broken, 3), "\xE2\x82\xAC");
    }
    const auto word = static_cast<std::int64_t>(byte_level ? *tokenizer->find("a") : 2);
    const std::string text = byte_level ? "a" : " blue";
    EXPECT_EQ(behind(tokenizer, std::vector<std::int64_t>{euro[0], word}, 1), text);
    EXPECT_EQ(behind(tokenizer, std::vector<std::int64_t>{euro[0]}, 1), "");
  }
}

}  // namespace
}  // namespace meshloom::text
