// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/token_text.h"

#include <gtest/gtest.h>

namespace meshloom::control {
namespace {

std::string streamed(const std::string& bytes) {
  ByteText text;
  std::string out;
  for (const char c : bytes) out += text.append(static_cast<unsigned char>(c));
  return out + text.finish();
}

TEST(ByteText, GivesWholeCharactersOnly) {
  const std::string replacement = "\xEF\xBF\xBD";
  EXPECT_EQ(streamed("plain"), "plain");
  EXPECT_EQ(streamed("Gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80"),
            "Gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80");
  ByteText text;
  EXPECT_EQ(text.append(0xE2), "");
  EXPECT_EQ(text.append(0x82), "");
  EXPECT_EQ(text.append(0xAC), "\xE2\x82\xAC");
  EXPECT_EQ(streamed("\xFF"), replacement);
  EXPECT_EQ(streamed("\xC3"), replacement);
  EXPECT_EQ(streamed("\xC3"
                     "a"),
            replacement + "a");
  EXPECT_EQ(streamed("\xE2\x82"
                     "\xC3\xBC"),
            replacement + "\xC3\xBC");
  EXPECT_EQ(streamed("\xC0\x80"), replacement + replacement);     // overlong
  EXPECT_EQ(streamed("\xED\xA0\x80").find(replacement), 0u);      // a surrogate
  EXPECT_EQ(streamed("\xF4\x90\x80\x80").find(replacement), 0u);  // above U+10FFFF
}

/// The text of the bytes behind those of a prompt.
std::string behind(const std::string& prompt, const std::string& bytes,
                   const std::vector<std::string>& stops = {}) {
  const auto tokens = [](const std::string& of) {
    std::vector<std::int64_t> ids;
    for (const char c : of) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  };
  const train::PromptLimits limits{train::kByteVocabulary, 64};
  TokenText text(limits, tokens(prompt), stops);
  std::string out;
  for (const std::int64_t token : tokens(bytes)) out += text.add(token);
  return out + text.finish();
}

TEST(TokenText, OfBytesGoesOnWithACharacterOfThePrompt) {
  EXPECT_EQ(behind("ab", "cd"), "cd");
  EXPECT_EQ(behind("Gr\xC3\xBC", "n"), "n");
  EXPECT_EQ(behind("\xE2", "\x82\xAC!"), "\xE2\x82\xAC!");
  EXPECT_EQ(behind("\xE2\x82", "\xAC!"), "\xE2\x82\xAC!");
  EXPECT_EQ(behind("\xE2\x82", "a\xE2"), "a\xEF\xBF\xBD") << "the first is the prompt's own";
  EXPECT_EQ(behind("\xE2\x82", ""), "");
  EXPECT_EQ(behind("a ", " b c", {" c"}), " b");
}

TEST(TokenText, OfTokensWithoutATextIsEmpty) {
  TokenText text(train::PromptLimits{300, 64}, std::vector<std::int64_t>{1, 2});
  EXPECT_EQ(text.add(3) + text.finish(), "");
}

}  // namespace
}  // namespace meshloom::control
