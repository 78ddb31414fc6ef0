// SPDX-License-Identifier: Apache-2.0
// Which tokens stand around the documents of a config, and those of configs that an older daemon
// resolved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>

#include "daemon/base/sha256.h"
#include "daemon/text/tokenizer_folder.h"
#include "daemon/train/config/refit.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/data/data_identity.h"
#include "daemon/train/data/run_data.h"
#include "daemon/train/data/text_data.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/run/run.h"
#include "kernels/base/error.h"
#include "tests/unit/train/data/text_job_test.h"

namespace meshloom::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<std::int64_t>;

// Behind the letters, which are 0 to 25.
constexpr int kEnd = 26, kStart = 27, kReturn = 28, kNewline = 29, kMark = 30, kHidden = 31;
constexpr int kVocabulary = 32;

/// A model whose tokenizer puts a token before every text, and knows newlines and the byte-order
/// mark.
class DocumentTokensTest : public TextJobTest {
 protected:
  void SetUp() override {
    write_model("model", kVocabulary);
    write_tokenizer({});
    folder_.write_text("text/a.txt",
                       "\xEF\xBB\xBF"
                       "ab\r\nc" +
                           std::string(100, 'z'));
    folder_.write_text("text/b.jsonl", "{\"text\": \"x\\r\"}\n");
  }
  /// `after`: tokens behind every text.
  void write_tokenizer(const std::vector<std::string>& after) const {
    nlohmann::json vocab;
    for (int i = 0; i < 26; ++i) vocab[std::string(1, static_cast<char>('a' + i))] = i;
    vocab["<end>"] = kEnd;
    vocab["<start>"] = kStart;
    vocab["\r"] = kReturn;
    vocab["\n"] = kNewline;
    vocab["\xEF\xBB\xBF"] = kMark;
    vocab["<hidden>"] = kHidden;
    nlohmann::json single = {{{"SpecialToken", {{"id", "<start>"}, {"type_id", 0}}}},
                             {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}};
    for (const std::string& token : after)
      single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    nlohmann::json special;
    for (const char* token : {"<start>", "<end>"})
      special[token] = {{"id", token}, {"ids", {vocab[token]}}, {"tokens", {token}}};
    const nlohmann::json json = {
        {"version", "1.0"},
        {"post_processor",
         {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", nlohmann::json::array()},
          {"special_tokens", special}}},
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
    folder_.write_text("model/tokenizer.json", json.dump());
    folder_.write_text("model/tokenizer_config.json", R"({"eos_token": "<end>"})");
  }
  /// Of the data, but for all z.
  Tokens tokens(const v1::RunConfig& resolved) const {
    const TokenStream stream = TokenStream::open(tokenize(resolved).tokens, TokenFormat::kLlmc);
    Tokens all(static_cast<std::size_t>(stream.size()));
    stream.read(0, all);
    std::erase(all, 25);
    return all;
  }
  /// What a daemon that did not know add_special_tokens made of config().
  v1::RunConfig resolved_before() const {
    v1::RunConfig config = resolve(this->config());
    config.mutable_data()->clear_add_special_tokens();
    base::Sha256 digest;
    const std::string parts = text::open_tokenizer(folder_.path() / "model").identity +
                              "\ntext\ntrue\n" + std::to_string(kEnd);
    digest.update(std::as_bytes(std::span(parts)));
    config.mutable_data()->mutable_identity()->set_tokenizer(digest.hex());
    return config;
  }

  const Tokens kNow = {kStart, 0, 1, kNewline, 2, kEnd, kStart, 23, kReturn, kEnd};
  const Tokens kBefore = {kMark, 0, 1, kReturn, kNewline, 2, kEnd, 23, kReturn, kEnd};
};

TEST_F(DocumentTokensTest, AreThoseOfThePromptsUnlessTheConfigSaysNo) {
  const v1::RunConfig resolved = resolve(config());
  EXPECT_TRUE(resolved.data().add_special_tokens());
  EXPECT_EQ(resolve(resolved).SerializeAsString(), resolved.SerializeAsString());
  EXPECT_EQ(tokens(resolved), kNow);
  v1::RunConfig without = config();
  without.mutable_data()->set_add_special_tokens(false);
  const v1::RunConfig plain = resolve(without);
  EXPECT_EQ(tokens(plain), (Tokens{0, 1, kNewline, 2, kEnd, 23, kReturn, kEnd}));
  EXPECT_NE(plain.data().identity().tokenizer(), resolved.data().identity().tokenizer());
  without.mutable_data()->set_append_eos(false);
  EXPECT_EQ(tokens(resolve(without)), (Tokens{0, 1, kNewline, 2, 23, kReturn}));
  v1::RunConfig begun = config();
  begun.mutable_data()->set_append_eos(false);
  EXPECT_EQ(tokens(resolve(begun)), (Tokens{kStart, 0, 1, kNewline, 2, kStart, 23, kReturn}));
}

TEST_F(DocumentTokensTest, AnEosOfTheTemplateIsTheEndOfItsDocument) {
  write_tokenizer({"<end>"});
  const v1::RunConfig resolved = resolve(config());
  EXPECT_EQ(tokens(resolved), kNow) << "once";
  EXPECT_EQ(resolved.data().document_end(), kEnd);
  v1::RunConfig in_parts = config();
  in_parts.mutable_data()->set_pack_documents(false);
  in_parts.mutable_data()->set_validation_split(0.0);
  const v1::RunConfig documents = resolve(in_parts);
  const nn::ModelConfig model = load_model_config(documents.model(), folder_.path());
  const RunData data =
      open_run_data(documents, model, folder_.path(), "run.data", tokenize(documents));
  const auto seq_len = static_cast<std::size_t>(documents.training().seq_len());
  Tokens inputs(seq_len), labels(seq_len);
  // The last of the samples that begin at documents is the second document.
  data.training->read(data.training->size() - 1, {inputs, labels, {}});
  EXPECT_THAT(std::span(inputs).first(3), ElementsAre(kStart, 23, kReturn));
  EXPECT_THAT(std::span(labels).first(4), ElementsAre(23, kReturn, kEnd, kIgnoredLabel));
}

TEST_F(DocumentTokensTest, WhereThereAreNoneTheFieldIsRefused) {
  folder_.write_u16("tokens.bin", std::vector<std::uint16_t>(100, 3));
  EXPECT_THAT(refused_when([](auto& c) {
                c.mutable_data()->set_path("tokens.bin");
                c.mutable_data()->set_add_special_tokens(true);
              }),
              HasSubstr("run.data.add_special_tokens: is for text that is tokenized"));
  EXPECT_THAT(refused_when([](auto& c) {
                c.mutable_data()->set_path("text/b.jsonl");
                c.mutable_data()->set_tokenizer("bytes");
                c.mutable_data()->set_add_special_tokens(true);
                c.mutable_model()->clear_config();
                c.mutable_model()->set_preset("byte_gpt_tiny");
              }),
              HasSubstr("run.data.add_special_tokens: bytes have no special tokens"));
  EXPECT_THAT(refused_when([](auto& c) {
                c.mutable_data()->set_path("text/a.txt");
                c.mutable_data()->set_skip_lines_without_text(true);
              }),
              HasSubstr("run.data.skip_lines_without_text: is for .jsonl"));
}

TEST_F(DocumentTokensTest, AreNeverHiddenFromAMaskedLanguageModel) {
  write_tokenizer({"<end>"});
  folder_.write_text("model/config.json",
                     fmt::format(R"({{"model_type": "bert", "architectures": ["BertForMaskedLM"],
              "vocab_size": {}, "hidden_size": 24, "intermediate_size": 40,
              "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 16,
              "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
              "initializer_range": 0.1}})",
                                 kVocabulary));
  v1::RunConfig given = config();
  v1::MaskedLmConfig& masked = *given.mutable_data()->mutable_masked_lm();
  masked.set_mask_token(kHidden);
  masked.add_special_tokens(5);
  const auto special = [&](const v1::RunConfig& resolved) {
    const auto& tokens = resolved.data().masked_lm().special_tokens();
    return Tokens(tokens.begin(), tokens.end());
  };
  const v1::RunConfig resolved = resolve(given);
  EXPECT_EQ(special(resolved), (Tokens{5, kStart, kEnd}));
  EXPECT_EQ(special(resolve(resolved)), special(resolved));
  given.mutable_data()->set_add_special_tokens(false);
  EXPECT_EQ(special(resolve(given)), (Tokens{5, kEnd})) << "the eos stands there, too";
  given.mutable_data()->set_append_eos(false);
  EXPECT_EQ(special(resolve(given)), (Tokens{5}));
}

TEST_F(DocumentTokensTest, AJobThatWasBegunBeforeKeepsItsOwn) {
  const v1::RunConfig before = resolved_before();
  EXPECT_EQ(tokens(before), kBefore) << "and is not refused as other data";
  // Resolved again, by itself or for other ranks, it is what it was.
  EXPECT_EQ(resolve(before).SerializeAsString(), before.SerializeAsString());
  const v1::RunConfig refitted =
      refit_run_config(config(), before, {.world_size = 2, .data_dir = folder_.path()});
  EXPECT_FALSE(refitted.data().has_add_special_tokens());
  EXPECT_EQ(refitted.data().identity().tokenizer(), before.data().identity().tokenizer());
  EXPECT_EQ(tokens(refitted), kBefore);
  // A new one of the same data is another one.
  EXPECT_THAT(difference(before.data().identity(), resolve(config()).data().identity()),
              HasSubstr("add_special_tokens"));
  EXPECT_NE(tokenize(before).tokens, tokenize(resolve(config())).tokens);
}

TEST_F(DocumentTokensTest, AJobThatGoesOnFromOneThatWasBegunBeforeKeepsIts) {
  const v1::RunConfig before = resolved_before();
  write_checkpoint(before);
  const v1::RunConfig next = settled(config());
  EXPECT_FALSE(next.data().has_add_special_tokens());
  EXPECT_EQ(tokens(next), kBefore);
  // One that says what it wants is told the difference.
  v1::RunConfig other = config();
  other.mutable_data()->set_add_special_tokens(true);
  try {
    settled(other);
    ADD_FAILURE() << "taken";
  } catch (const FailedPrecondition& error) {
    EXPECT_THAT(error.what(), HasSubstr("data.add_special_tokens"));
  }
  // From one that knows the field a job takes it as it is.
  write_checkpoint(resolve(config()));
  EXPECT_EQ(tokens(settled(config())), kNow);
}

TEST_F(DocumentTokensTest, LinesWithoutTextAreLeftOutAndCountedWhereTheConfigSaysSo) {
  folder_.write_text("text/b.jsonl", "{\"text\": \"x\\r\"}\n{\"text\": null}\n{\"body\": 1}\n");
  EXPECT_THAT(refused_when([](auto&) {}),
              AllOf(HasSubstr("NO_FIELD run.data.field: "), HasSubstr("b.jsonl:2: ")));
  v1::RunConfig skipping = config();
  skipping.mutable_data()->set_skip_lines_without_text(true);
  const v1::RunConfig resolved = resolve(skipping);
  EXPECT_EQ(tokens(resolved), kNow);
  const TokenizedText text = tokenize(resolved);
  ASSERT_EQ(text.made_of.size(), 1u);
  EXPECT_EQ(text.made_of[0].summary.skipped_lines, 2);
  // What they made is not given to a job that refuses such lines.
  v1::RunConfig refusing = resolved;
  refusing.mutable_data()->set_skip_lines_without_text(false);
  try {
    tokenize(refusing);
    ADD_FAILURE() << "taken";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.reason(), "NO_FIELD");
  }
}

TEST_F(DocumentTokensTest, AllLinesAreLookedAtUntilTheTimeIsUp) {
  folder_.write_text("late.jsonl", "{\"text\": \"" + std::string(1 << 17, 'x') +
                                       "\"}\n{\"text\": null}\n{\"text\": \"x\"}\n");
  v1::RunConfig given = config();
  given.mutable_data()->set_path("text/a.txt");
  given.mutable_data()->set_validation_path("late.jsonl");
  const v1::RunConfig resolved = resolve(given);
  const auto now = std::chrono::steady_clock::now();
  const auto later = now + std::chrono::hours(1);
  SoundLines sound;
  try {
    check_lines(resolved, folder_.path(), later, sound);
    ADD_FAILURE() << "taken";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.metadata().at("field"), "run.data.field");
    EXPECT_EQ(error.metadata().at("line"), "2");
  }
  EXPECT_NO_THROW(check_lines(resolved, folder_.path(), now, sound));
  given.mutable_data()->set_skip_lines_without_text(true);
  EXPECT_NO_THROW(check_lines(resolve(given), folder_.path(), later, sound));
  EXPECT_THROW(check_lines(resolved, folder_.path(), later, sound), InvalidArgument)
      << "sound for whoever skips lines, alone";
}

TEST_F(DocumentTokensTest, AFileThatWasFoundSoundIsReadAgainOnceItHasChanged) {
  const auto path =
      folder_.write_text("lines.jsonl", "{\"text\": \"" + std::string(1 << 17, 'x') + "\"}\n");
  v1::RunConfig given = config();
  given.mutable_data()->set_path("lines.jsonl");
  const v1::RunConfig resolved = resolve(given);
  const auto later = std::chrono::steady_clock::now() + std::chrono::hours(1);
  const std::string key = SoundLines::key(text::document_file(path),
                                          text::DocumentReading{.field = resolved.data().field()});
  SoundLines sound;
  EXPECT_NO_THROW(check_lines(resolved, folder_.path(), std::chrono::steady_clock::now(), sound));
  EXPECT_FALSE(sound.has(key)) << "there was no time to read it";
  EXPECT_NO_THROW(check_lines(resolved, folder_.path(), later, sound));
  EXPECT_TRUE(sound.has(key));
  folder_.write_text("lines.jsonl",
                     "{\"text\": \"" + std::string(1 << 17, 'x') + "\"}\n{\"text\": 1}\n");
  EXPECT_THROW(check_lines(resolved, folder_.path(), later, sound), InvalidArgument);
  for (std::size_t i = 0; i < SoundLines::kKept; ++i) sound.add(std::to_string(i));
  EXPECT_FALSE(sound.has(key)) << "the oldest goes";
}

}  // namespace
}  // namespace meshloom::train
