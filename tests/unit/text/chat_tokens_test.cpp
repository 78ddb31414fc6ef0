// SPDX-License-Identifier: Apache-2.0
// Tokens of conversations, and which of them are learnt.
#include <gtest/gtest.h>

#include <random>

#include "daemon/text/byte_tokenizer.h"
#include "daemon/text/document_encoder.h"
#include "daemon/text/learned_tokens.h"
#include "daemon/text/pipeline_tokenizer.h"
#include "daemon/text/token_file.h"
#include "daemon/text/token_ranges.h"
#include "tests/support/reason_of.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/text/golden_file.h"

namespace meshloom::text {
namespace {

/// Which tokens have a byte in one of the ranges, by the text of every single token.
std::vector<TokenRange> by_each_text(const Tokenizer& tokenizer, std::string_view text,
                                     const std::vector<TokenId>& tokens,
                                     const std::vector<ByteRange>& ranges) {
  std::vector<ByteRange> spans;
  std::size_t at = 0;
  for (const TokenId token : tokens) {
    const std::size_t bytes = tokenizer.decode(std::vector<TokenId>{token}, false).size();
    spans.emplace_back(at, at + bytes);
    at += bytes;
  }
  EXPECT_EQ(at, text.size()) << "the texts of tokens are not those of the text";
  std::vector<TokenRange> inside;
  for (const auto& [begin, end] : ranges) {
    std::size_t first = 0, last = 0;
    while (spans[first].second <= begin) ++first;
    for (last = first; last < spans.size() && spans[last].first < end;) ++last;
    inside.emplace_back(first, last);
  }
  return inside;
}

TEST(TokenRanges, HaveEveryTokenWithAByteInside) {
  const auto tokenizer = read_tokenizer_json(golden_file("gpt2").at("tokenizer").dump(), "gpt2");
  const std::string text =
      "The quick brown fox, asked them:  what they said.\nAnd more of the same text";
  const std::vector<TokenId> tokens = tokenizer.encode(text, false);
  std::mt19937 random(7);
  WordCache cache;
  int inside_tokens = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<ByteRange> ranges;
    std::size_t at = random() % 10;
    while (ranges.size() < 1 + static_cast<std::size_t>(round) % 4 && at + 1 < text.size()) {
      const std::size_t end = std::min(text.size(), at + 1 + random() % 20);
      ranges.emplace_back(at, end);
      at = end + 1 + random() % 10;
    }
    const auto expected = by_each_text(tokenizer, text, tokens, ranges);
    EXPECT_EQ(tokens_in_ranges(tokenizer, text, tokens, ranges, cache), expected) << round;
    inside_tokens += static_cast<int>(expected.size());
  }
  EXPECT_GT(inside_tokens, 300);
  EXPECT_TRUE(tokens_in_ranges(tokenizer, text, tokens, {}, cache).empty());
}

TEST(TokenRanges, OfShortPartsEndWhereNobodyWantsThem) {
  const ByteTokenizer bytes;
  const std::string text(1000, 'x');
  std::vector<ByteRange> ranges;
  for (std::size_t i = 0; i + 2 < text.size(); i += 2) ranges.emplace_back(i, i + 1);
  WordCache cache;
  int asked = 0;
  const StopCheck stop = [&] {
    if (++asked == 100) throw Cancelled("nobody wants them");
  };
  EXPECT_THROW(tokens_in_ranges(bytes, text, bytes.encode(text, false), ranges, cache, stop),
               Cancelled);
}

TEST(TokenRanges, OfATextWithoutBytesHaveNoTokens) {
  const auto tokenizer = read_tokenizer_json(golden_file("gpt2").at("tokenizer").dump(), "gpt2");
  WordCache cache;
  const std::vector<ByteRange> ranges = {{0, 0}};
  // Tokens that are not those of the text, as where a tokenizer has some for no text.
  const std::vector<TokenId> tokens = {0};
  EXPECT_TRUE(tokens_in_ranges(tokenizer, "", tokens, ranges, cache).empty());
}

ChatReading plain(LineKind kind) { return {kind, false, nullptr}; }

std::vector<TokenId> encode(const std::filesystem::path& path, const Tokenizer& tokenizer,
                            const EncodeOptions& options, TokenizeSummary* summary = nullptr) {
  std::vector<TokenId> tokens;
  const TokenizeSummary made = encode_documents(
      find_document_files(path), tokenizer, options, [&](const std::vector<TokenId>& part) {
        tokens.insert(tokens.end(), part.begin(), part.end());
      });
  if (summary) *summary = made;
  return tokens;
}

TEST(ChatTokens, TellWhereAConversationBeginsAndWhatIsLearnt) {
  const ByteTokenizer bytes;
  const test::TempFolder folder;
  folder.write("a.jsonl",
               "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n\n{\"prompt\": \"\", \"completion\": "
               "\"e\"}\n");
  for (const int threads : {1, 3}) {
    TokenizeSummary summary;
    EncodeOptions options{.end = 10, .threads = threads};
    options.chat = plain(LineKind::kCompletion);
    const std::vector<TokenId> tokens = encode(folder / "a.jsonl", bytes, options, &summary);
    EXPECT_EQ(tokens, (std::vector<TokenId>{'a' | kNotLearnt | kBeginsText, 'b' | kNotLearnt, 'c',
                                            'd', 10, 'e' | kBeginsText, 10}));
    EXPECT_EQ(summary.documents, 2);
    EXPECT_EQ(summary.learnt_tokens, 5);
    EXPECT_EQ(summary.bytes, 5u);
    EXPECT_EQ(summary.tokens, 7);
  }
  EncodeOptions all{.threads = 1};
  all.chat = ChatReading{LineKind::kCompletion, true, nullptr};
  EXPECT_EQ(encode(folder / "a.jsonl", bytes, all),
            (std::vector<TokenId>{'a' | kBeginsText, 'b', 'c', 'd', 'e' | kBeginsText}));
}

TEST(ChatTokens, ARenderedTextHasTheTokensItSpellsOutAndNoOthers) {
  const auto tokenizer =
      read_tokenizer_json(golden_file("llama3").at("tokenizer").dump(), "llama3");
  const Template around = tokenizer.around();
  ASSERT_EQ(around.before.size(), 1u);
  const std::string bos = tokenizer.decode(around.before, false);
  const auto renderer = std::make_shared<const ChatRenderer>(
      ChatTemplateSource{
          "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ bos_token }}{% endfor %}", "t"},
      NamedTokens{{"bos_token", bos}}, 0);
  const test::TempFolder folder;
  folder.write("a.jsonl",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"the fox\"}, {\"role\": "
               "\"assistant\", \"content\": \" asks\"}]}\n");
  EncodeOptions options;
  options.chat = ChatReading{LineKind::kMessages, false, renderer};
  const std::vector<TokenId> tokens = encode(folder / "a.jsonl", tokenizer, options);
  std::vector<TokenId> ids;
  for (const TokenId token : tokens) ids.push_back(id_of(token));
  EXPECT_EQ(ids, tokenizer.encode(bos + "the fox" + bos + " asks" + bos, false));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), around.before.front()), 3);
  std::vector<TokenId> learnt;
  for (const TokenId token : tokens)
    if ((token & kNotLearnt) == 0) learnt.push_back(token);
  EXPECT_EQ(tokenizer.decode(learnt, false), " asks" + bos);
}

TEST(ChatTokens, FilesOfTextAndWrongLinesAreRefusedByPlace) {
  const ByteTokenizer bytes;
  const test::TempFolder folder;
  folder.write("a.txt", "text");
  folder.write("b.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"messages\": []}\n");
  EncodeOptions options;
  options.chat = plain(LineKind::kCompletion);
  EXPECT_EQ(test::reason_of([&] { encode(folder / "a.txt", bytes, options); }), "NO_CONVERSATION");
  try {
    encode(folder / "b.jsonl", bytes, options);
    FAIL() << "taken";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.metadata().at("line"), "2");
  }
}

TEST(ChatTokens, AFileOfThemSaysSo) {
  const ByteTokenizer bytes;
  const test::TempFolder folder;
  folder.write("a.jsonl", "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n");
  TokenFileOptions options;
  options.encode.chat = plain(LineKind::kCompletion);
  write_token_file(find_document_files(folder / "a.jsonl"), bytes, options, folder / "a.bin");
  const TokenFile file(folder / "a.bin");
  EXPECT_TRUE(file.is_chat());
  ASSERT_TRUE(file.summary());
  EXPECT_EQ(file.summary()->learnt_tokens, 2);
  EXPECT_EQ(file.read(0, 10),
            (std::vector<TokenId>{'a' | kNotLearnt | kBeginsText, 'b' | kNotLearnt, 'c', 'd'}));
}

}  // namespace
}  // namespace meshloom::text
