// SPDX-License-Identifier: Apache-2.0
// Every code point: what regular expressions, normalisers and pre-tokenizers make of it, as digests
// of what the `tokenizers` package makes of it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/base/input_file.h"
#include "daemon/base/sha256.h"
#include "daemon/text/normalizer.h"
#include "daemon/text/pre_tokenizer.h"
#include "daemon/text/regex.h"
#include "daemon/text/utf8.h"
#include "tests/support/source_folder.h"

namespace meshloom::text {
namespace {

const nlohmann::json& golden() {
  static const auto cases = [] {
    const base::InputFile file(
        test::source_file("tests/golden/tokenizer/characters/characters.json"));
    return nlohmann::json::parse(file.read_text(1 << 20));
  }();
  return cases;
}

class Lines {
 public:
  void add(const std::string& line) {
    text_ += line;
    text_ += '\n';
  }
  std::string digest() const {
    base::Sha256 digest;
    digest.update(std::as_bytes(std::span(text_)));
    return digest.hex();
  }

 private:
  std::string text_;
};

template <typename Body>
void for_each_character(Body&& body) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(c, text);
    body(text);
  }
}

TEST(Characters, AreMatchedByRegularExpressionsAsInThePackage) {
  std::string all;
  for_each_character([&](const std::string& c) { all += c; });
  for (const auto& [expression, digest] : golden().at("without_matches").items()) {
    std::string rest;
    std::size_t from = 0;
    Regex(expression).for_each_match(all, [&](std::size_t begin, std::size_t end) {
      rest.append(all, from, begin - from);
      from = end;
    });
    Lines lines;
    lines.add(rest.append(all, from));
    EXPECT_EQ(lines.digest(), digest.get<std::string>()) << expression;
  }
}

TEST(Characters, AreNormalizedAsInThePackage) {
  for (const auto& [name, digest] : golden().at("normalized").items()) {
    nlohmann::json json = {{"type", name}};
    if (name == "BertNormalizer")
      for (const char* key : {"clean_text", "handle_chinese_chars", "lowercase"}) json[key] = true;
    const Normalizer normalizer = read_normalizer(JsonPart(json, name));
    Lines lines;
    for_each_character([&](const std::string& c) {
      NormalText text{"a" + c + "b"};
      Budget budget;
      normalizer(text, budget);
      lines.add(text.text);
    });
    EXPECT_EQ(lines.digest(), digest.get<std::string>()) << name;
  }
}

TEST(Characters, CombineAsInThePackage) {
  const nlohmann::json all = golden();
  const std::vector<std::pair<char32_t, std::uint32_t>> ranges = all.at("combining");
  for (const auto& [name, digest] : all.at("combined").items()) {
    const nlohmann::json json = {{"type", name}};
    const Normalizer normalizer = read_normalizer(JsonPart(json, name));
    std::uint64_t state = 1;
    const auto draw = [&] {
      state = (state * 1103515245 + 12345) % (std::uint64_t{1} << 31);
      return static_cast<std::uint32_t>(state >> 8);
    };
    Lines lines;
    for (int i = 0; i < 20'000; ++i) {
      NormalText text;
      for (int k = 0; k < 6; ++k) {
        const auto& [first, count] = ranges[draw() % ranges.size()];
        append_utf8(first + draw() % count, text.text);
      }
      Budget budget;
      normalizer(text, budget);
      lines.add(text.text);
    }
    EXPECT_EQ(lines.digest(), digest.get<std::string>()) << name;
  }
}

TEST(Characters, ClusterAsInThePackage) {
  const nlohmann::json all = golden();
  const nlohmann::json json = {{"type", "Precompiled"},
                               {"precompiled_charsmap", all.at("map_of_first_bytes")}};
  const Normalizer normalizer = read_normalizer(JsonPart(json, "Precompiled"));
  for (const auto& [around, digest] : all.at("clusters").items()) {
    const std::size_t place = around.find("{}");
    Lines lines;
    for_each_character([&](const std::string& c) {
      NormalText text{std::string(around).replace(place, 2, c)};
      Budget budget;
      normalizer(text, budget);
      lines.add(text.text);
    });
    EXPECT_EQ(lines.digest(), digest.get<std::string>()) << around;
  }
}

TEST(Characters, AreDividedIntoScriptsAsInThePackage) {
  std::vector<std::string> characters;
  for_each_character([&](const std::string& c) { characters.push_back(c); });
  const nlohmann::json json = {{"type", "UnicodeScripts"}};
  const PreTokenizers splitter = read_pre_tokenizers(JsonPart(json, "UnicodeScripts"));
  for (const auto& [stride, digest] : golden().at("scripts").items()) {
    std::string text;
    for (std::size_t i = 0; i < characters.size(); ++i)
      text += characters[i * std::stoul(stride) % characters.size()];
    Lines lines;
    Budget budget = Budget::of_text(text.size());
    splitter.split({text, true}, budget,
                   [&](const Piece& piece) { lines.add(std::string(piece.text)); });
    EXPECT_EQ(lines.digest(), digest.get<std::string>()) << stride;
  }
}

TEST(Characters, AreSplitAsInThePackage) {
  for (const auto& [name, digest] : golden().at("split").items()) {
    const nlohmann::json json = {{"type", name}};
    const PreTokenizers splitter = read_pre_tokenizers(JsonPart(json, name));
    Lines lines;
    for_each_character([&](const std::string& c) {
      std::string joined;
      Budget budget;
      splitter.split({"a" + c + "b", true}, budget, [&](const Piece& piece) {
        if (!joined.empty()) joined += '\n';
        joined += piece.text;
      });
      lines.add(joined);
    });
    EXPECT_EQ(lines.digest(), digest.get<std::string>()) << name;
  }
}

}  // namespace
}  // namespace meshloom::text
