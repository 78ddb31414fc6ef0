// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/text_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/text/tokenizer_folder.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/data/data_identity.h"
#include "daemon/train/data/run_data.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/run/run.h"
#include "kernels/base/error.h"
#include "tests/support/file_text.h"
#include "tests/unit/train/data/text_job_test.h"

namespace meshloom::train {
namespace {

using ::testing::HasSubstr;

/// A model of as many tokens as its tokenizer has: letters a to z and an eos.
class TextDataTest : public TextJobTest {
 protected:
  static constexpr int kVocabulary = 27;

  void SetUp() override {
    write_model("model", kVocabulary);
    write_tokenizer("model");
    folder_.write_text("text/a.txt", std::string(300, 'a') + "bcd");
    folder_.write_text("text/b.jsonl", "{\"text\": \"xyz\"}\n{\"text\": \"zyx\"}\n");
  }
  void write_tokenizer(const std::string& name, bool reversed = false) const {
    nlohmann::json vocab;
    for (int i = 0; i < 26; ++i)
      vocab[std::string(1, static_cast<char>('a' + i))] = reversed ? 25 - i : i;
    vocab["<end>"] = 26;
    const nlohmann::json json = {
        {"version", "1.0"},
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
    folder_.write_text(name + "/tokenizer.json", json.dump());
    folder_.write_text(name + "/tokenizer_config.json", R"({"eos_token": "<end>"})");
  }
  RunData open(const v1::RunConfig& resolved, const TokenizedText& text) const {
    const nn::ModelConfig model = load_model_config(resolved.model(), folder_.path());
    return open_run_data(resolved, model, folder_.path(), "run.data", text);
  }
};

TEST_F(TextDataTest, TheModelsTokenizerIsTaken) {
  const v1::RunConfig resolved = resolve(config());
  EXPECT_EQ(resolved.data().tokenizer(), "auto");
  EXPECT_EQ(resolved.data().field(), "text");
  EXPECT_TRUE(resolved.data().append_eos());
  EXPECT_TRUE(resolved.data().add_special_tokens());
  EXPECT_EQ(resolved.data().document_end(), 26);
  EXPECT_EQ(resolved.data().identity().tokens(), 0);
  EXPECT_EQ(resolved.data().identity().file_count(), 2);
  EXPECT_EQ(resolved.data().identity().tokenizer().size(), 64u);
  EXPECT_EQ(resolve(resolved).SerializeAsString(), resolved.SerializeAsString());

  v1::RunConfig named = config();
  named.mutable_data()->set_tokenizer("model");
  EXPECT_EQ(resolve(named).data().identity().tokenizer(), resolved.data().identity().tokenizer());
  named.mutable_data()->set_tokenizer("model/tokenizer.json");
  EXPECT_EQ(resolve(named).data().identity().tokenizer(), resolved.data().identity().tokenizer());
}

TEST_F(TextDataTest, DocumentsBecomeTokensThatEndWithEos) {
  v1::RunConfig given = config();
  given.mutable_data()->set_validation_path("text/b.jsonl");
  const v1::RunConfig resolved = resolve(given);
  EXPECT_EQ(open(resolved, {}).training, nullptr) << "nothing is tokenized at submission";
  const TokenizedText text = tokenize(resolved);
  EXPECT_EQ(text.tokenizer, resolved.data().identity().tokenizer());
  const RunData data = open(resolved, text);
  EXPECT_EQ(data.training->tokens(), 304 + 4 + 4);
  EXPECT_EQ(data.validation->tokens(), 8);
  EXPECT_EQ(data.identity.tokens(), 312);
  EXPECT_EQ(check_same_data(resolved.data().identity(), data.identity, false, "x"), "");
  std::vector<std::int64_t> all(8);
  TokenStream::open(text.validation_tokens, TokenFormat::kLlmc).read(0, all);
  EXPECT_EQ(all, (std::vector<std::int64_t>{23, 24, 25, 26, 25, 24, 23, 26}));
}

TEST_F(TextDataTest, AnotherTokenizerIsOtherData) {
  const v1::RunConfig resolved = resolve(config());
  const TokenizedText before = tokenize(resolved);
  const RunData data = open(resolved, before);
  write_tokenizer("model", true);
  try {
    tokenize(resolved);
    ADD_FAILURE() << "taken";
  } catch (const FailedPrecondition& error) {
    EXPECT_EQ(error.reason(), "DATA_CHANGED");
  }
  const v1::RunConfig now = resolve(config());
  EXPECT_THAT(difference(data.identity, now.data().identity()), HasSubstr("the tokenizer"));
  v1::RunConfig allowed = resolved;
  allowed.mutable_data()->set_allow_changed(true);
  EXPECT_NE(tokenize(allowed).tokens, before.tokens);
  v1::RunConfig without = config();
  without.mutable_data()->set_append_eos(false);
  EXPECT_NE(resolve(without).data().identity().tokenizer(), now.data().identity().tokenizer());
}

TEST_F(TextDataTest, WhatDoesNotFitIsRefused) {
  write_model("small", 20);
  write_tokenizer("small");
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_model()->set_config("small/config.json"); }),
              AllOf(HasSubstr("TOKENIZER_TOO_LARGE"), HasSubstr("up to 26"), HasSubstr("is 20")));
  write_model("bare", kVocabulary);
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_model()->set_config("bare/config.json"); }),
              HasSubstr("TOKENIZER_NEEDED"));
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_data()->set_tokenizer("bare"); }),
              HasSubstr("NO_TOKENIZER run.data.tokenizer"));
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_data()->set_tokenizer("nowhere"); }),
              HasSubstr("NOT_FOUND run.data.tokenizer"));
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_data()->set_tokenizer("models/m"); }),
              HasSubstr("model of a daemon"));
  folder_.write_text("array.npy", "numbers");
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_data()->set_path("array.npy"); }),
              HasSubstr("NOT_TEXT run.data.path"));
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_data()->set_validation_path("array.npy"); }),
              HasSubstr("NOT_TEXT run.data.validation_path"));
  folder_.write_u16("tokens.bin", std::vector<std::uint16_t>(100, 3));
  EXPECT_THAT(refused_when([](auto& c) {
                c.mutable_data()->set_path("tokens.bin");
                c.mutable_data()->set_append_eos(true);
              }),
              HasSubstr("run.data.append_eos"));
  folder_.write_text("model/tokenizer_config.json", "{}");
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_data()->set_append_eos(true); }),
              HasSubstr("run.data.append_eos: the tokenizer names no eos_token"));
}

TEST_F(TextDataTest, WithoutAnEosNothingStandsBehindADocument) {
  folder_.write_text("model/tokenizer_config.json", "{}");
  const v1::RunConfig resolved = resolve(config());
  EXPECT_TRUE(resolved.data().has_append_eos());
  EXPECT_FALSE(resolved.data().append_eos());
  EXPECT_FALSE(resolved.data().has_document_end());
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_data()->set_pack_documents(false); }),
              HasSubstr("run.data.document_end"));
}

TEST_F(TextDataTest, AnotherTokenizerIsLookedAtBeforeAnythingIsMade) {
  const auto reason = [&](const v1::RunConfig& resolved) {
    try {
      tokenize(resolved);
    } catch (const Error& error) {
      return error.reason() + " " + error.what();
    }
    return std::string("taken");
  };
  v1::RunConfig resolved = resolve(config());
  write_tokenizer("model", true);
  EXPECT_THAT(reason(resolved), HasSubstr("DATA_CHANGED"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "cache"));
  resolved.mutable_data()->set_allow_changed(true);
  nlohmann::json vocab = {{"a", 0}, {"b", 40}};
  const nlohmann::json larger = {
      {"version", "1.0"},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
  folder_.write_text("model/tokenizer.json", larger.dump());
  EXPECT_THAT(reason(resolved), AllOf(HasSubstr("TOKENIZER_TOO_LARGE"), HasSubstr("up to 40")));
  write_tokenizer("model");
  folder_.write_text("model/tokenizer_config.json", "{}");
  EXPECT_THAT(reason(resolved), HasSubstr("run.data.append_eos"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "cache"));
}

TEST_F(TextDataTest, WhatCannotBecomeDocumentsIsRefusedAtSubmission) {
  const auto unpacked = [&](bool append_eos) {
    return refused_when([&](auto& c) {
      c.mutable_data()->set_pack_documents(false);
      c.mutable_data()->set_append_eos(append_eos);
    });
  };
  EXPECT_EQ(unpacked(true), "accepted");
  EXPECT_THAT(unpacked(false), HasSubstr("run.data.document_end"));
  EXPECT_THAT(refused_when([](auto& c) {
                c.mutable_data()->set_append_eos(false);
                c.mutable_data()->set_document_mask(true);
              }),
              HasSubstr("run.data.document_end"));
  write_model("bytes", 256);
  const auto lines_of_bytes = [](auto& c) {
    c.mutable_model()->set_config("bytes/config.json");
    c.mutable_data()->set_path("text/b.jsonl");
    c.mutable_data()->set_pack_documents(false);
  };
  EXPECT_THAT(refused_when(lines_of_bytes), HasSubstr("run.data.document_end"));

  folder_.write_text("zeros/a.txt", std::string("a\0b", 3));
  EXPECT_THAT(refused_when([](auto& c) {
                c.mutable_data()->set_path("zeros");
                c.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
              }),
              HasSubstr("NOT_TEXT run.data.path"));
  // Sparse behind its beginning, so that it takes no room.
  const auto large = folder_.write_text("large.txt", std::string(1 << 16, 'a'));
  std::filesystem::resize_file(large, (std::uint64_t{128} << 20) + 1);
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_data()->set_path("large.txt"); }),
              AllOf(HasSubstr("FILE_TOO_LARGE run.data.path"), HasSubstr("134217729")));
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_data()->set_validation_path("large.txt"); }),
              HasSubstr("FILE_TOO_LARGE run.data.validation_path"));
  EXPECT_THAT(refused_when([](auto& c) {
                c.mutable_validation()->set_interval(1);
                v1::ValidationSet& set = *c.mutable_validation()->add_sets();
                set.set_name("large");
                set.set_path("large.txt");
              }),
              HasSubstr("FILE_TOO_LARGE run.validation.sets[0].path"));
}

TEST_F(TextDataTest, LargeTextIsTakenWhereTheTokenizerCanDivideIt) {
  const auto large = folder_.write_text("large.txt", std::string(1 << 16, 'a'));
  std::filesystem::resize_file(large, (std::uint64_t{128} << 20) + 1);
  const auto path = folder_.path() / "model/tokenizer.json";
  nlohmann::json json = nlohmann::json::parse(test::file_text(path));
  json["pre_tokenizer"] = {{"type", "Whitespace"}};
  folder_.write_text("model/tokenizer.json", json.dump());
  EXPECT_EQ(refused_when([](auto& c) { c.mutable_data()->set_path("large.txt"); }), "accepted");
}

TEST_F(TextDataTest, LinesWithoutTheFieldAreRefusedAtSubmission) {
  folder_.write_text("body/a.jsonl", "{\"body\": \"x\", \"id\": \"y\"}\n");
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_data()->set_path("body"); }),
              AllOf(HasSubstr("NO_FIELD run.data.field: "), HasSubstr("a.jsonl:1: "),
                    HasSubstr("no text under \"text\": the line has \"body\", \"id\"")));
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_data()->set_validation_path("body"); }),
              HasSubstr("NO_FIELD run.data.field: "));
  folder_.write_text("broken.jsonl", "no json\n");
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_data()->set_path("broken.jsonl"); }),
              HasSubstr("run.data.path: "));
  // What only a later line lacks is found when the text is read.
  folder_.write_text("late.jsonl",
                     "{\"text\": \"" + std::string(1 << 16, 'x') + "\"}\n{\"body\": \"x\"}\n");
  v1::RunConfig given = config();
  given.mutable_data()->set_path("late.jsonl");
  const v1::RunConfig resolved = resolve(given);
  try {
    tokenize(resolved);
    ADD_FAILURE() << "taken";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("run.data.field: "), HasSubstr("late.jsonl:2: ")));
  }
}

TEST_F(TextDataTest, TextThatIsNoUtf8IsCounted) {
  folder_.write_text("text/c.txt", "a\xFFz");
  const TokenizedText text = tokenize(resolve(config()));
  ASSERT_EQ(text.made_of.size(), 1u);
  EXPECT_EQ(text.made_of[0].field, "run.data.path");
  EXPECT_EQ(text.made_of[0].summary.documents, 4);
  EXPECT_EQ(text.made_of[0].summary.replaced_documents, 1);
  EXPECT_EQ(tokenize(resolve(config())).made_of[0].summary, text.made_of[0].summary)
      << "the file that is kept says the same";
}

TEST_F(TextDataTest, TokenizersAreNotLinkedFromOutside) {
  const test::TempFolder outside;
  write_model("linked", kVocabulary);
  const auto path = outside.write("tokenizer.json", "{}");
  std::filesystem::create_symlink(path, folder_.path() / "linked/tokenizer.json");
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_model()->set_config("linked/config.json"); }),
              HasSubstr("INVALID_PATH run.model.config"));
  EXPECT_THAT(refused_when([](auto& c) { c.mutable_data()->set_tokenizer("linked"); }),
              HasSubstr("INVALID_PATH run.data.tokenizer"));
  std::filesystem::remove(folder_.path() / "linked/tokenizer.json");
  std::filesystem::create_symlink(path, folder_.path() / "linked/unrelated.json");
  std::filesystem::create_symlink(folder_.path() / "model/tokenizer.json",
                                  folder_.path() / "linked/tokenizer.json");
  std::filesystem::create_symlink(folder_.path() / "model/tokenizer_config.json",
                                  folder_.path() / "linked/tokenizer_config.json");
  EXPECT_EQ(refused_when([](auto& c) { c.mutable_model()->set_config("linked/config.json"); }),
            "accepted")
      << "links inside are followed, other files are no part of the model";
}

TEST_F(TextDataTest, BytesOfJsonLinesAreThoseOfTheirDocuments) {
  write_model("bytes", 256);
  folder_.write_text("lines.jsonl",
                     "{\"body\": \"\\u00e4\"}\n{\"body\": \"" + std::string(40, 'x') + "\"}\n");
  v1::RunConfig given = config();
  given.mutable_model()->set_config("bytes/config.json");
  given.mutable_data()->set_path("lines.jsonl");
  given.mutable_data()->set_field("body");
  const v1::RunConfig resolved = resolve(given);
  EXPECT_EQ(resolved.data().tokenizer(), "bytes");
  EXPECT_FALSE(resolved.data().append_eos());
  EXPECT_TRUE(resolved.data().has_add_special_tokens());
  EXPECT_FALSE(resolved.data().add_special_tokens());
  const TokenizedText text = tokenize(resolved);
  std::vector<std::int64_t> tokens(3);
  const TokenStream stream = TokenStream::open(text.tokens, TokenFormat::kLlmc);
  EXPECT_EQ(stream.size(), 42);
  stream.read(0, tokens);
  EXPECT_EQ(tokens, (std::vector<std::int64_t>{0xC3, 0xA4, 'x'}));
  // Text as it is stays as it was.
  given.mutable_data()->set_path("text/a.txt");
  given.mutable_data()->clear_field();
  EXPECT_TRUE(tokenize(resolve(given)).tokens.empty());
  given.mutable_data()->set_tokenizer("auto");
  EXPECT_EQ(resolve(given).data().tokenizer(), "bytes");
}

}  // namespace
}  // namespace meshloom::train
