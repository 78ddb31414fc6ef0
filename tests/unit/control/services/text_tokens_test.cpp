// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/text_tokens.h"

#include <gmock/gmock.h>

#include "tests/support/temp_folder.h"
#include "tests/unit/control/fake_admission.h"

namespace meshloom::control {
namespace {

/// Words of one letter, of which 0 stands around a text and has none itself.
class LetterTokenizer final : public text::Tokenizer {
 public:
  using Tokenizer::decode;
  using Tokenizer::encode;
  void encode(std::string_view bytes, bool with_template, text::WordCache&, text::Budget& budget,
              std::vector<text::TokenId>& out) const override {
    budget.spend(bytes.size(), "letters");
    if (with_template) out.push_back(0);
    for (const char c : bytes) out.push_back(c - 'a' + 1);
  }
  std::string decode(std::span<const text::TokenId> tokens, bool skip_special,
                     text::Budget&) const override {
    std::string text;
    for (const text::TokenId token : tokens) {
      if (token > 0)
        text += static_cast<char>('a' + token - 1);
      else if (!skip_special)
        text += "<s>";
    }
    return text;
  }
  text::TokenId end() const override { return 27; }
  std::optional<text::TokenId> find(std::string_view) const override { return std::nullopt; }
};

class TextTokensTest : public ::testing::Test {
 protected:
  void give_tokenizer() {
    plan_.vocab_size = 32;
    plan_.tokenizer = std::make_shared<LetterTokenizer>();
  }
  std::vector<std::int64_t> encode(const std::string& text, bool around = true) {
    v1::EncodeTextRequest request;
    request.mutable_source()->mutable_model()->set_preset("any");
    request.mutable_prompt()->set_prompt(text);
    if (!around) request.set_add_special_tokens(false);
    const auto response = encode_text(request, admission_, admission_, [] {});
    return {response.token_ids().begin(), response.token_ids().end()};
  }
  std::string decode(const std::vector<std::int64_t>& tokens, bool skip = false) {
    v1::DecodeTokensRequest request;
    request.mutable_source()->mutable_model()->set_preset("any");
    request.mutable_token_ids()->Add(tokens.begin(), tokens.end());
    request.set_skip_special_tokens(skip);
    return decode_tokens(request, admission_, admission_, [] {}).text();
  }
  /// The reason and the field that it is refused with.
  template <typename Body>
  static std::string refusal(const Body& body) {
    try {
      body();
    } catch (const Error& error) {
      const auto field = error.metadata().find("field");
      return error.reason() + " " + (field == error.metadata().end() ? "" : field->second);
    }
    return "";
  }

  test::TempFolder folder_;
  FakePlan plan_;
  FakeAdmission admission_{plan_, folder_.path()};
};

TEST_F(TextTokensTest, TheTokensOfAModelOfBytesAreItsBytes) {
  plan_.vocab_size = 256;
  EXPECT_THAT(encode("a\xC3\xA9"), ::testing::ElementsAre('a', 0xC3, 0xA9));
  EXPECT_EQ(decode({'a', 0xC3, 0xA9}), "a\xC3\xA9");
  EXPECT_EQ(decode({0xC3, 'b'}),
            "\xEF\xBF\xBD"
            "b")
      << "no answer holds what is no UTF-8";
  EXPECT_EQ(refusal([&] { decode({1, 256}); }), "INVALID_ARGUMENT token_ids[1]");
  EXPECT_EQ(refusal([&] { decode({-1}); }), "INVALID_ARGUMENT token_ids[0]");
  EXPECT_TRUE(encode("").empty());
}

TEST_F(TextTokensTest, ATokenizerHasItsSpecialTokensWhereTheyAreWanted) {
  give_tokenizer();
  EXPECT_THAT(encode("ab"), ::testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(encode("ab", false), ::testing::ElementsAre(1, 2));
  EXPECT_EQ(decode({0, 1, 2}), "<s>ab");
  EXPECT_EQ(decode({0, 1, 2}, true), "ab");
  EXPECT_EQ(refusal([&] { decode({32}); }), "INVALID_ARGUMENT token_ids[0]");
}

TEST_F(TextTokensTest, WhatHasNoTextOrTooMuchIsRefused) {
  plan_.vocab_size = 1000;
  EXPECT_EQ(refusal([&] { encode("a"); }), "TOKENIZER_NEEDED source.model");
  EXPECT_EQ(refusal([&] { decode({1}); }), "TOKENIZER_NEEDED source.model");
  plan_.no_tokenizer = "it is of another world";
  EXPECT_EQ(refusal([&] { encode("a"); }), "TOKENIZER_NEEDED source.model");
  plan_.no_tokenizer.clear();
  give_tokenizer();
  EXPECT_EQ(refusal([&] { encode(std::string((1 << 20) + 1, 'a')); }),
            "TEXT_TOO_LONG prompt.prompt");
  EXPECT_EQ(encode(std::string(1 << 20, 'a')).size(), (1u << 20) + 1);
  EXPECT_EQ(refusal([&] { decode(std::vector<std::int64_t>(262'145, 1)); }),
            "TEXT_TOO_LONG token_ids");
  v1::EncodeTextRequest tokens;
  tokens.mutable_prompt()->add_token_ids(1);
  EXPECT_EQ(refusal([&] { encode_text(tokens, admission_, admission_, [] {}); }),
            "INVALID_ARGUMENT prompt.token_ids");
}

TEST_F(TextTokensTest, WhoHasGoneEndsTheWork) {
  give_tokenizer();
  v1::EncodeTextRequest request;
  request.mutable_prompt()->set_prompt(std::string(1 << 20, 'a'));
  EXPECT_THROW(encode_text(request, admission_, admission_, [] { throw Cancelled("gone"); }),
               Cancelled);
}

}  // namespace
}  // namespace meshloom::control
