// SPDX-License-Identifier: Apache-2.0
// generation_config.json: what transformers takes from it, and files that are wrong.
#include "daemon/train/config/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/train/config/sample_start.h"
#include "daemon/train/config/sampling_params.h"
#include "daemon/train/run/run.h"
#include "tests/support/temp_folder.h"

namespace meshloom::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kVocabulary = 300;

GenerationConfig read(const std::string& text) {
  const test::TempFolder folder;
  folder.write("generation_config.json", text);
  return read_generation_config(folder.path(), kVocabulary);
}

TEST(GenerationConfig, NamesEndTokensAsANumberOrAList) {
  using Ids = std::vector<std::int64_t>;
  EXPECT_EQ(read(R"({"eos_token_id": 7})").end_tokens, (Ids{7}));
  EXPECT_EQ(read(R"({"eos_token_id": [2, 278]})").end_tokens, (Ids{2, 278}));
  for (const char* none : {R"({"eos_token_id": null})", R"({"eos_token_id": []})", "{}"}) {
    const GenerationConfig config = read(none);
    EXPECT_EQ(config.end_tokens, std::nullopt) << none;
    EXPECT_THAT(config.end_notes, IsEmpty()) << none;
  }
  const test::TempFolder empty;
  EXPECT_EQ(read_generation_config(empty.path(), kVocabulary).end_tokens, std::nullopt);
  EXPECT_THAT(read_generation_config({}, kVocabulary).end_notes, IsEmpty());
}

TEST(GenerationConfig, SaysWhichEndTokensAreNone) {
  for (const auto& [value, seen] : std::initializer_list<std::pair<const char*, const char*>>{
           {"300", "holds 300, expected token ids below 300"},
           {"-1", "holds -1"},
           {"18446744073709551615", "holds 18446744073709551615"},
           {"2.5", "holds 2.5"},
           {"\"</s>\"", "holds \"</s>\""},
           {"true", "holds true"},
           {"{\"a\": 1}", "holds an object"}}) {
    const GenerationConfig config = read(fmt::format(R"({{"eos_token_id": {}}})", value));
    EXPECT_EQ(config.end_tokens, std::nullopt) << value;
    EXPECT_THAT(config.end_notes, ElementsAre(HasSubstr(seen))) << value;
  }
  const GenerationConfig some = read(R"({"eos_token_id": [4, 999, [5], -3]})");
  EXPECT_THAT(*some.end_tokens, ElementsAre(4));
  EXPECT_THAT(some.end_notes, ElementsAre(HasSubstr("holds 999"))) << "the first stands for all";
}

TEST(GenerationConfig, AFileThatCannotBeReadIsNoted) {
  for (const std::string& text : {std::string("{"), std::string(), std::string("[1]"),
                                  std::string(100'000, '['), std::string(2 << 20, ' ')}) {
    const GenerationConfig config = read(text);
    EXPECT_EQ(config.end_tokens, std::nullopt);
    EXPECT_THAT(config.end_notes, ElementsAre(HasSubstr("generation_config.json is left out: ")));
  }
  const test::TempFolder folder;
  std::filesystem::create_directory(folder / "generation_config.json");
  EXPECT_THAT(read_generation_config(folder.path(), kVocabulary).end_notes,
              ElementsAre(HasSubstr("generation_config.json is left out: ")));
  const std::string deep(400'000, '[');
  const std::string nested = deep + std::string(400'000, ']');
  for (const char* key : {"eos_token_id", "temperature", "anything"})
    EXPECT_THAT(read(fmt::format("{{\"{}\": {}}}", key, nested)).end_notes,
                ElementsAre(HasSubstr("is left out: it nests its values deeper than 64 levels")));
  EXPECT_THAT(read(R"({"top_k": 1, "top_k": 2})").end_notes,
              ElementsAre(HasSubstr("it has the key \"top_k\" twice")));
  EXPECT_THAT(read(R"({"eos_token_id": [[1]]})").end_notes, ElementsAre(HasSubstr("holds a list")));
  EXPECT_THAT(read(R"({"temperature": [1]})").notes,
              ElementsAre(HasSubstr("temperature is a list")));
}

TEST(GenerationConfig, GivesARequestWhatItLeavesOut) {
  const GenerationConfig config = read(
      R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.9, "max_length": 77})");
  v1::SamplingParams params;
  EXPECT_THAT(take_generation_defaults(config, &params),
              ElementsAre("the model's generation_config.json gives temperature 0.6, top_k 20, "
                          "top_p 0.9"));
  EXPECT_EQ(params.temperature(), 0.6);
  EXPECT_EQ(params.top_k(), 20);
  EXPECT_EQ(params.top_p(), 0.9);
  EXPECT_THAT(take_generation_defaults(config, &params), IsEmpty()) << "all is given now";

  v1::SamplingParams own;
  own.set_temperature(0.0);
  EXPECT_THAT(take_generation_defaults(config, &own), IsEmpty()) << "nothing is drawn";
  own.set_temperature(2.0);
  own.set_top_k(5);
  own.set_top_p(1.0);
  EXPECT_THAT(take_generation_defaults(config, &own), IsEmpty());
  EXPECT_EQ(own.temperature(), 2.0);
  EXPECT_EQ(own.top_k(), 5);
  EXPECT_EQ(own.top_p(), 1.0);
  own.set_top_k(0);
  take_generation_defaults(config, &own);
  EXPECT_EQ(own.top_k(), 0) << "all, as the request says";

  v1::SamplingParams none;
  EXPECT_THAT(take_generation_defaults(read(R"({"top_k": 0, "top_p": 1.0, "do_sample": true,
      "temperature": null, "repetition_penalty": 1, "num_beams": 1})"),
                                       &none),
              IsEmpty());
  EXPECT_FALSE(none.has_temperature());
  EXPECT_FALSE(none.has_top_p());
}

TEST(GenerationConfig, WithoutSamplingTheLikeliestTokenIsTaken) {
  const GenerationConfig config =
      read(R"({"do_sample": false, "temperature": 0.6, "top_k": 20, "top_p": 0.9})");
  v1::SamplingParams params;
  EXPECT_THAT(take_generation_defaults(config, &params),
              ElementsAre("the model's generation_config.json gives temperature 0 (do_sample: "
                          "false)"));
  EXPECT_TRUE(params.has_temperature());
  EXPECT_EQ(params.temperature(), 0.0);
  EXPECT_EQ(params.top_k(), 0);
  v1::SamplingParams warm;
  warm.set_temperature(1.0);
  EXPECT_THAT(take_generation_defaults(config, &warm),
              ElementsAre(HasSubstr("gives top_k 20, top_p")));
}

TEST(GenerationConfig, WhatCannotBeUsedIsNoted) {
  for (const auto& [text, note] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"temperature": -1})", "temperature is -1, expected a number of 0 or more"},
           {R"({"temperature": 1e999})", "is left out: it is not valid JSON"},
           {R"({"temperature": "hot"})", "temperature is \"hot\""},
           {R"({"top_p": 0})", "top_p is 0, expected a number above 0 and at most 1"},
           {R"({"top_p": 1.5})", "top_p is 1.5"},
           {R"({"top_k": -3})", "top_k is -3, expected a whole number from 0 on"},
           {R"({"top_k": 2.5})", "top_k is 2.5"},
           {R"({"top_k": 99999999999})", "top_k is 99999999999"},
           {R"({"do_sample": "no"})", "do_sample is \"no\", expected true or false"},
           {R"({"repetition_penalty": 1.05})", "repetition_penalty is 1.05: not offered"},
           {R"({"num_beams": 4})", "num_beams is 4: not offered"},
           {R"({"stop_strings": ["x"]})", "stop_strings is a list: not offered"}}) {
    v1::SamplingParams params;
    EXPECT_THAT(take_generation_defaults(read(text), &params), ElementsAre(HasSubstr(note)))
        << text;
    EXPECT_EQ(params.ByteSizeLong(), 0u) << text;
  }
}

TEST(GenerationConfig, EndTokensTakeThePlaceOfTheConfigsAndStopsStay) {
  PromptLimits limits;
  limits.vocab_size = kVocabulary;
  v1::SampleStop stop;
  stop.add_token_ids(5);
  stop.add_strings("x");
  SampleStart start;
  set_ends(stop, limits, &start);
  EXPECT_THAT(start.end_tokens, IsEmpty());
  EXPECT_FALSE(start.stop.ignore_eos()) << "the config's count";
  EXPECT_EQ(start.stop.strings_size(), 0) << "looked for in text";
  limits.generation.end_tokens = {{2, 278}};
  set_ends(stop, limits, &start);
  EXPECT_THAT(start.end_tokens, ElementsAre(2, 278));
  EXPECT_TRUE(start.stop.ignore_eos());
  EXPECT_THAT(start.stop.token_ids(), ElementsAre(5));
  stop.set_ignore_eos(true);
  set_ends(stop, limits, &start);
  EXPECT_THAT(start.end_tokens, IsEmpty());
}

TEST(GenerationConfig, IsThatOfTheFolderThatTheModelComesFrom) {
  const test::TempFolder data;
  for (const char* name : {"hf", "named"}) {
    std::filesystem::create_directory(data / name);
    data.write(std::string(name) + "/generation_config.json", R"({"eos_token_id": [1, 400]})");
    data.write(std::string(name) + "/config.json", "{}");
  }
  const auto found = [&](const v1::ModelSource& source, const std::filesystem::path& named = {}) {
    return find_generation_config(source, data.path(), named, kVocabulary).end_tokens.has_value();
  };
  v1::ModelSource source;
  source.set_hf_folder("hf");
  EXPECT_TRUE(found(source));
  std::vector<std::string> warnings;
  note_end_tokens(source, data.path(), {}, kVocabulary, &warnings);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("eos_token_id holds 400")));
  source = {};
  source.set_config("hf/config.json");
  EXPECT_TRUE(found(source));
  source = {};
  source.set_name("models/a");
  EXPECT_TRUE(found(source, data / "named"));
  source = {};
  source.set_preset("byte_gpt_tiny");
  EXPECT_FALSE(found(source));
}

}  // namespace
}  // namespace meshloom::train
