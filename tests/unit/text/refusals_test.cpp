// SPDX-License-Identifier: Apache-2.0
// What a tokenizer.json has and this program does not know is refused by its name.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/base/input_file.h"
#include "daemon/text/pipeline_tokenizer.h"
#include "daemon/text/regex.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

using Json = nlohmann::json;

Json small() {
  return Json::parse(R"({"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
    "added_tokens": [], "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
}

template <typename Kind>
void expect_refused(const Json& json, const std::string& words) {
  try {
    read_tokenizer_json(json.dump(), "t.json");
    ADD_FAILURE() << "accepted " << json.dump();
  } catch (const Kind& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(TokenizerJson, ReadsTheSmallestOne) {
  const auto tokenizer = read_tokenizer_json(small().dump(), "t.json");
  EXPECT_EQ(tokenizer.encode("abba", true), (std::vector<TokenId>{2, 1, 0}));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{2, 99, -1, 1}, false), "ab b");
  EXPECT_EQ(tokenizer.end(), 3);
  EXPECT_TRUE(tokenizer.encode("", true).empty());
}

TEST(TokenizerJson, RefusesByNameWhatIsNotKnown) {
  const std::pair<const char*, Json> parts[] = {{"/normalizer", {{"type", "Nmt"}}},
                                                {"/pre_tokenizer", {{"type", "Sentences"}}},
                                                {"/post_processor", {{"type", "Strange"}}},
                                                {"/decoder", {{"type", "CTC"}}},
                                                {"/model/type", "Markov"},
                                                {"/model/dropout", 0.1},
                                                {"/new_part", 1},
                                                {"/version", "2.0"}};
  for (const auto& [where, value] : parts) {
    Json json = small();
    json[Json::json_pointer(where)] = value;
    const std::string name =
        value.is_object() ? value["type"].get<std::string>() : std::string(where).substr(1, 3);
    expect_refused<Unimplemented>(json, name);
  }
}

TEST(TokenizerJson, RefusesWhatContradictsItself) {
  Json json = small();
  json["model"]["merges"] = {"a c"};
  expect_refused<InvalidArgument>(json, "\"ac\"");
  json = small();
  json["model"]["merges"] = {"a b c"};
  expect_refused<InvalidArgument>(json, "model.merges[0]");
  json = small();
  json["model"]["vocab"]["a"] = -3;
  expect_refused<InvalidArgument>(json, "model.vocab.a: got -3");
  json = small();
  for (const char* delimiter : {"", "ab"}) {
    json["pre_tokenizer"] = {{"type", "CharDelimiterSplit"}, {"delimiter", delimiter}};
    expect_refused<InvalidArgument>(json, "pre_tokenizer.delimiter: got");
  }
  for (const Json& length : {Json(0), Json(-1), Json(2.5), Json(nullptr)}) {
    json["pre_tokenizer"] = {{"type", "FixedLength"}, {"length", length}};
    expect_refused<InvalidArgument>(json, "length");
  }
  json["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", ""}};
  expect_refused<InvalidArgument>(json, "pre_tokenizer.replacement: got an empty text");
  json = small();
  json["decoder"] = {{"type", "Metaspace"}, {"replacement", ""}};
  expect_refused<InvalidArgument>(json, "decoder.replacement: got an empty text");
  json["decoder"] = {{"type", "Strip"}, {"content", ""}, {"start", 1}, {"stop", 0}};
  expect_refused<InvalidArgument>(json, "decoder.content: got an empty text");
  EXPECT_THROW(read_tokenizer_json("{\"version\"", "t.json"), InvalidArgument);
  EXPECT_THROW(read_tokenizer_json("[]", "t.json"), InvalidArgument);
}

TEST(TokenizerJson, RefusesWhatIsNoMapOfCharacters) {
  const std::string field = "normalizer.precompiled_charsmap: ";
  for (const auto& [map, words] : {std::pair(Json("AAA"), "got no map"),
                                   {Json(""), "got no map"},
                                   {Json("AA A"), "got no map"},
                                   {Json("AAAA"), "has 3 bytes"},
                                   {Json("BAAAAAAAAAA="), "expected whole units"},
                                   {Json(nullptr), "has no"}}) {
    Json json = small();
    json["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", map}};
    expect_refused<InvalidArgument>(json, map.is_null() ? words : field);
    expect_refused<InvalidArgument>(json, words);
  }
  // Its only unit points outside of the trie.
  Json json = small();
  json["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "BAAAAAAAEAAA"}};
  const auto tokenizer = read_tokenizer_json(json.dump(), "t.json");
  EXPECT_THROW(tokenizer.encode("ab", false), InvalidArgument);
}

TEST(TokenizerJson, RefusesDeepNesting) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THROW(read_tokenizer_json(deep, "t.json"), InvalidArgument);
  Json json = small();
  Json* inner = &json["decoder"];
  for (int i = 0; i < 70; ++i) inner = &(*inner = Json::array({nullptr}))[0];
  expect_refused<InvalidArgument>(json, "t.json: nests its values deeper than 64 levels");
}

TEST(RegularExpressions, AreRefusedWhereTheTwoSyntaxesDiffer) {
  for (const char* expression :
       {"\\h+", "\\bword", "[[:alpha:]]", "[a-z&&b]", "(?m:a)", "\\p{Han}", "\\p{Letter}", "\\1",
        "\\R", "a{1,2}+", "a{,3}", "a{1, 3}", "a{ 1,3}", "a{3}?", "(?<name>a)", "\\K", "[a", "\\"})
    EXPECT_THROW(Regex{expression}, Unimplemented) << expression;
  for (const char* expression :
       {"a{3}", "a{1,}?", "a{1,3}?", "{", "a{}", "{a,1}", "\\{1, 3}", "[{,]"})
    EXPECT_NO_THROW(Regex{expression}) << expression;
  for (const char* expression : {"(a", "*a", "a{2,1}"})
    EXPECT_THROW(Regex{expression}, InvalidArgument) << expression;
}

TEST(RegularExpressions, ThatGiveUpAreAnError) {
  // Nested repetitions take time beyond every limit; the text does not end there.
  const Regex regex("(?:a+a+)+c");
  const std::string text = std::string(5'000, 'a') + "bc";
  EXPECT_THROW(regex.for_each_match(text, [](std::size_t, std::size_t) {}), ResourceExhausted);
}

}  // namespace
}  // namespace meshloom::text
