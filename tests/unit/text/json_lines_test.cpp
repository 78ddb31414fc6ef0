// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/json_lines.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace meshloom::text {
namespace {

const std::filesystem::path kPath = "a.jsonl";

Document document(const std::string& line) {
  return document_of_line(line, {}, {kPath, 1}).value();
}

/// Lines that hold text, each with something that a reader may stumble on.
const std::vector<std::string> kLines = {
    R"({"text": "plain"})",
    R"(  {"id": 1, "text" : "a", "n": [1, 2.5, -0, 1e-05, {"text": null}], "t": true}  )",
    "\t{\"text\":\"\"}\r",
    R"({"text": null, "text": "the last counts"})",
    R"({"text": "\" \\ \/ \b \f \n \r \t \u00e4 \\ud83d"})",
    R"({"text": "\ud83d\ude00"})",
    R"({"a": {"b": {"text": 1}}, "text": "nested", "z": []})",
    "{\"text\": \"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80 longer than eight bytes, \x7F\"}",
    R"({"te\u0078t": "spelled in another way"})",
    R"({"n": 123456789012345678901234567890, "f": false, "text": "x"})",
};

/// Lines that hold none, or are no JSON.
const std::vector<std::string> kOthers = {
    "",
    "{}",
    "[\"text\"]",
    "\"text\"",
    R"({"text": null})",
    R"({"text": 5})",
    R"({"text": ["x"]})",
    R"({"text": "x", "text": null})",
    R"({"a": {"text": "x"}})",
    R"({"text": "x"} more)",
    R"({"text": "x")",
    R"({"text": "x)",
    R"({"text": "x",})",
    R"({"text" "x"})",
    R"({"text": "\x"})",
    R"({"text": "\u12"})",
    R"({"text": "x", "n": 01})",
    R"({"text": "x", "n": 1.})",
    R"({"text": "x", "n": 1e999})",
    R"({"text": "x", "n": NaN})",
    R"({"text": "x", "n": tru})",
    "{\"text\": \"a\tb\"}",
    "{\"text\": \"\xFF\"}",
    "{\"text\": \"\xC3\"}",
    "{\"text\": \"\xED\xA0\xBD\"}",
};

bool is_taken(const std::string& line) {
  try {
    return document_of_line(line, {}, {kPath, 1}).has_value();
  } catch (const InvalidArgument&) {
    return false;
  }
}

TEST(JsonLines, AQuickLookTakesNoLineThatIsRefused) {
  for (const std::string& line : kLines) EXPECT_TRUE(is_taken(line)) << line;
  for (const std::string& line : kOthers) {
    EXPECT_FALSE(is_taken(line)) << line;
    EXPECT_FALSE(plainly_has_text(line, "text")) << line;
  }
  // Two of the lines need more than a quick look.
  int plain = 0;
  for (const std::string& line : kLines) plain += plainly_has_text(line, "text");
  EXPECT_EQ(plain, static_cast<int>(kLines.size()) - 2);
  const std::string deep =
      "{\"a\": " + std::string(1000, '[') + std::string(1000, ']') + ", \"text\": \"x\"}";
  EXPECT_TRUE(is_taken(deep));
  EXPECT_FALSE(plainly_has_text(deep, "text"));
  // Lines with bytes lost, added or made others.
  std::mt19937 random(5);
  const std::string bytes = "{}[]\",:\\eE+-.01 \t\r\nuntf\xC3\xA4\xED\xF4\x1F";
  int taken = 0;
  for (int i = 0; i < 40000; ++i) {
    std::string line = kLines[random() % kLines.size()];
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % line.size();
      const char byte = bytes[random() % bytes.size()];
      switch (random() % 3) {
        case 0: line.erase(at, 1); break;
        case 1: line.insert(at, 1, byte); break;
        default: line[at] = byte;
      }
    }
    if (!plainly_has_text(line, "text")) continue;
    ++taken;
    ASSERT_TRUE(is_taken(line)) << line;
  }
  EXPECT_GT(taken, 1000);
}

TEST(JsonLines, AHalfOfASurrogatePairIsTheReplacementCharacter) {
  const std::string kReplacement = "\xEF\xBF\xBD";
  const auto read = [](const std::string& line) {
    const Document made = document(line);
    return std::pair(made.text, made.has_lone_surrogates);
  };
  using Read = std::pair<std::string, bool>;
  EXPECT_EQ(read(R"({"text": "a\ud83d"})"), Read("a" + kReplacement, true));
  EXPECT_EQ(read(R"({"text": "\uDC00b"})"), Read(kReplacement + "b", true));
  EXPECT_EQ(read(R"({"text": "\ud83d\ud83d\ude00"})"),
            Read(kReplacement + "\xF0\x9F\x98\x80", true));
  EXPECT_EQ(read(R"({"text": "\ude00\ud83d"})"), Read(kReplacement + kReplacement, true));
  EXPECT_EQ(read(R"({"text": "\ud83dx\ude00"})"), Read(kReplacement + "x" + kReplacement, true));
  EXPECT_EQ(read(R"({"text": "\\ud83d"})"), Read("\\ud83d", false)) << "no escape";
  EXPECT_EQ(read(R"({"text": "x\\\ud83d"})"), Read("x\\" + kReplacement, true));
  EXPECT_EQ(read(R"({"text": "\ufffd"})"), Read(kReplacement, false));
  EXPECT_EQ(read(R"({"text": "\ufffd", "other\ud800": "\ud800"})"), Read(kReplacement, false))
      << "the halves are not in the text";
  EXPECT_FALSE(is_taken(R"({"text": "\ud83d", "n": 01})"));
}

TEST(JsonLines, LinesWithoutTextAreSkippedWhereThatIsWanted) {
  const DocumentReading skips{.skips_lines_without_text = true};
  for (const char* line : {R"({"text": null})", R"({"other": "x"})", R"([1])", R"("x")",
                           R"({"text": "x", "text": null})", R"({"text": {"a": "\ud83d"}})"})
    EXPECT_FALSE(document_of_line(line, skips, {kPath, 1})) << line;
  EXPECT_EQ(document_of_line(R"({"text": "x"})", skips, {kPath, 1})->text, "x");
  EXPECT_THROW(document_of_line(R"({"text": nul})", skips, {kPath, 1}), InvalidArgument)
      << "what is no JSON may have lost its text";
}

TEST(JsonLines, ALineOfValuesWithoutEndIsRefusedByItsPlace) {
  std::string line = R"({"text": "x", "n": [)";
  for (int i = 0; i < 4'000'000; ++i) line += "0,";
  try {
    document_of_line(line + "0]}", {}, {kPath, 7});
    ADD_FAILURE() << "it was taken";
  } catch (const ResourceExhausted& error) {
    EXPECT_EQ(error.reason(), "JSON_TOO_LARGE");
    EXPECT_NE(std::string(error.what()).find(":7: has more than 4000000 values"), std::string::npos)
        << error.what();
  }
  const std::string nested = std::string(2000, '[') + std::string(2000, ']');
  EXPECT_EQ(document_of_line(R"({"n": )" + nested + R"(, "text": "x"})", {}, {kPath, 1})->text,
            "x");
}

}  // namespace
}  // namespace meshloom::text
