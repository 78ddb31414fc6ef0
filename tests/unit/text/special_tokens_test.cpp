// SPDX-License-Identifier: Apache-2.0
// Where folders name their special tokens. Expected values are those of transformers'
// AutoTokenizer, but for the last two of document_end, which it has no word for.
#include "daemon/text/special_tokens.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/text/tokenizer_folder.h"
#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"

namespace meshloom::text {
namespace {

using Json = nlohmann::json;

/// What the files of a folder hold beside its tokenizer.json; null: it is not there.
struct Files {
  const char* config = nullptr;
  const char* map = nullptr;
  const char* model = nullptr;
};

/// The text of a tokenizer.json whose words are these, with no added tokens.
std::string words(const std::vector<std::string>& texts) {
  Json vocab = Json::object();
  for (const std::string& text : texts) vocab[text] = vocab.size();
  return Json{{"version", "1.0"},
              {"added_tokens", Json::array()},
              {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
              {"model", {{"type", "WordLevel"}, {"vocab", vocab}, {"unk_token", "[UNK]"}}}}
      .dump();
}

class SpecialTokensOfFolder : public testing::Test {
 protected:
  FolderTokenizer open(const Files& files) {
    for (const auto& [name, text] : {std::pair("tokenizer_config.json", files.config),
                                     {"special_tokens_map.json", files.map},
                                     {"config.json", files.model}}) {
      std::filesystem::remove(folder_ / name);
      if (text != nullptr) folder_.write(name, text);
    }
    return open_tokenizer(folder_.path());
  }
  std::optional<TokenId> eos(const Files& files) { return open(files).eos; }

  test::TempFolder folder_;
};

constexpr const char* kGpt2 = R"({"model_type": "gpt2", "eos_token_id": 3})";
constexpr const char* kLlama = R"({"model_type": "llama"})";

TEST_F(SpecialTokensOfFolder, AreNamedByTheConfigTheMapAndTheClass) {
  folder_.write("tokenizer.json", words({"a", "b", "[UNK]", "c", "<|endoftext|>", "</s>"}));
  EXPECT_EQ(eos({}), std::nullopt);
  EXPECT_EQ(eos({.config = R"({"eos_token": "a"})"}), 0);
  EXPECT_EQ(eos({.map = R"({"eos_token": "b"})", .model = kLlama}), 1);
  EXPECT_EQ(eos({.map = R"({"eos_token": {"content": "b", "lstrip": false}})"}), 1);
  // The map counts before the config, but not beside added_tokens_decoder.
  EXPECT_EQ(eos({.config = R"({"eos_token": "a"})", .map = R"({"eos_token": "b"})"}), 1);
  EXPECT_EQ(eos({.config = R"({"eos_token": "a", "added_tokens_decoder": {}})",
                 .map = R"({"eos_token": "b"})"}),
            0);
  EXPECT_EQ(eos({.config = R"({"eos_token": null})", .map = R"({"eos_token": "b"})"}), 1);
  EXPECT_EQ(eos({.config = R"({"eos_token": "a"})", .map = R"({"eos_token": null})"}),
            std::nullopt);
  // The class of the folder has one where nothing is said.
  EXPECT_EQ(eos({.config = "{}", .model = kGpt2}), 4);
  EXPECT_EQ(eos({.config = R"({"eos_token": "a"})", .model = kGpt2}), 0);
  EXPECT_EQ(eos({.config = R"({"tokenizer_class": "GPT2TokenizerFast"})", .model = kLlama}), 4);
  EXPECT_EQ(eos({.config = R"({"tokenizer_class": "LlamaTokenizer"})", .model = kLlama}), 5);
  EXPECT_EQ(eos({.model = R"({"model_type": "llama", "tokenizer_class": "LlamaTokenizer"})"}), 5);
}

TEST_F(SpecialTokensOfFolder, AreNoneOfAClassThatTheFolderIsNotReadBy) {
  folder_.write("tokenizer.json", words({"a", "b", "[UNK]", "c", "<|endoftext|>", "</s>"}));
  for (const Files& files : {Files{.config = R"({"tokenizer_class": "PreTrainedTokenizerFast"})",
                            .model = R"({"model_type": "gpt2"})"},
                             Files{.config = R"({"tokenizer_class": "LlamaTokenizer"})",
                             .model = R"({"model_type": "mistral"})"},
                             Files{.config = R"({"tokenizer_class": "Strange"})", .model = kLlama}})
    EXPECT_EQ(eos(files), std::nullopt) << files.config;
  EXPECT_EQ(eos({.config = R"({"tokenizer_class": "LlamaTokenizerFast"})",
                 .model = R"({"model_type": "qwen2"})"}),
            4);
  std::string json = words({"a", "[UNK]", "</s>"});
  folder_.write("tokenizer.json", json);
  const Files llama = {.config = R"({"tokenizer_class": "LlamaTokenizer"})", .model = kLlama};
  EXPECT_EQ(eos(llama), 2);
  Json byte_level = Json::parse(json);
  byte_level["decoder"] = {{"type", "ByteLevel"}};
  byte_level["decoder"].update({{"add_prefix_space", false}, {"trim_offsets", true}});
  folder_.write("tokenizer.json", byte_level.dump());
  EXPECT_EQ(eos(llama), std::nullopt);
}

TEST_F(SpecialTokensOfFolder, WithoutAnEosADocumentEndsAsATextDoesOrAsTheModelSays) {
  folder_.write("tokenizer.json", words({"a", "b", "[UNK]", "c", "[SEP]", "[CLS]"}));
  EXPECT_EQ(eos({.model = R"({"model_type": "bert"})"}), 4);
  EXPECT_EQ(eos({.config = R"({"sep_token": "b"})"}), 1);
  // The class's own, which this vocabulary has not, is none.
  EXPECT_EQ(eos({.model = kGpt2}), 3);
  EXPECT_EQ(eos({.model = R"({"eos_token_id": [1, 3]})"}), 1);
  EXPECT_EQ(eos({.model = R"({"eos_token_id": 6})"}), std::nullopt) << "the tokenizer has six";
  EXPECT_EQ(eos({.config = R"({"eos_token": "gone"})", .model = kGpt2}), std::nullopt)
      << "one that is named and not there";
}

TEST_F(SpecialTokensOfFolder, AreSpecialInTexts) {
  folder_.write("tokenizer.json", words({"a", "[UNK]", "[SEP]"}));
  const auto plain = open({.model = kLlama});
  EXPECT_EQ(plain.tokenizer->encode("a[SEP]", false), std::vector<TokenId>{1});
  const auto named = open({.model = R"({"model_type": "bert"})"});
  EXPECT_EQ(named.tokenizer->encode("a[SEP]", false), (std::vector<TokenId>{0, 2}));
  EXPECT_EQ(named.tokenizer->decode(std::vector<TokenId>{0, 2}, true), "a");
  EXPECT_NE(named.identity, plain.identity) << "other tokens";
}

TEST_F(SpecialTokensOfFolder, LeaveTheIdentityAsItIsWhereTokensAre) {
  Json json = Json::parse(words({"a", "b", "[UNK]", "</s>"}));
  json["added_tokens"].push_back({{"id", 3},
                                  {"content", "</s>"},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", true}});
  folder_.write("tokenizer.json", json.dump());
  const std::string identity = open({}).identity;
  EXPECT_EQ(open({.map = R"({"eos_token": "</s>"})", .model = kGpt2}).identity, identity);
  json["added_tokens"][0]["id"] = 30;
  folder_.write("tokenizer.json", json.dump());
  const std::string other = open({}).identity;
  json["added_tokens"][0]["content"] = "<new>";
  folder_.write("tokenizer.json", json.dump());
  EXPECT_NE(open({}).identity, other);
}

TEST_F(SpecialTokensOfFolder, AreRefusedWhereTheyAreNoText) {
  folder_.write("tokenizer.json", words({"a", "[UNK]"}));
  for (const Files& files :
       {Files{.config = R"({"eos_token": 5})"}, Files{.map = R"({"eos_token": ["a"]})"},
        Files{.map = R"({"bos_token": {"id": 3}})"}, Files{.map = "[]"}, Files{.map = "{"},
        Files{.config = "[]"}, Files{.model = "[]"}, Files{.model = R"({"model_type": 5})"}})
    EXPECT_THROW(open(files), InvalidArgument) << (files.config != nullptr ? files.config
                                                   : files.map != nullptr  ? files.map
                                                                           : files.model);
}

// --- Vocabularies as older classes have them.

class SpecialTokensOfVocabulary : public SpecialTokensOfFolder {
 protected:
  /// Bytes of ASCII letters and the blank, two words, a merge.
  void write_bpe() {
    folder_.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "Ġ": 3, "<|endoftext|>": 4,
                                    "</s>": 5, "1": 6, "2": 7, "12": 8})");
    folder_.write("merges.txt", "#version: 0.2\na b\n1 2\n");
  }
  std::vector<TokenId> encode(const Files& files, const std::string& text) {
    return open(files).tokenizer->encode(text, true);
  }
};

TEST_F(SpecialTokensOfVocabulary, OfMergesAreThoseOfTheMapAndItsClass) {
  write_bpe();
  EXPECT_EQ(eos({.model = kGpt2}), 4);
  EXPECT_EQ(eos({.map = R"({"eos_token": "</s>"})", .model = kGpt2}), 5);
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(encode({.model = kGpt2}, "ab</s>").size(), 1u) << "no byte of it is in this vocabulary";
  EXPECT_EQ(encode({.map = R"({"eos_token": "</s>"})", .model = kGpt2}, "ab</s>"), (Ids{2, 5}));
  // Numbers are words for GPT-2, digits for Qwen 2, whose class its type names.
  EXPECT_EQ(encode({.model = kGpt2}, "12"), Ids{8});
  EXPECT_EQ(encode({.model = R"({"model_type": "qwen2"})"}, "12"), (Ids{6, 7}));
  EXPECT_THROW(open({.model = R"({"model_type": "roberta"})"}), Unimplemented);
}

TEST_F(SpecialTokensOfVocabulary, OfMergesStandAroundTextsThatAskForThem) {
  write_bpe();
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(encode({.config = R"({"add_bos_token": true})", .model = kGpt2}, "ab"), (Ids{4, 2}));
  EXPECT_EQ(encode({.config = R"({"add_eos_token": true, "eos_token": "</s>"})"}, "ab"),
            (Ids{2, 5}));
  EXPECT_EQ(encode({.config = R"({"add_bos_token": true, "bos_token": "</s>",
                                  "add_eos_token": true})"},
                   "ab"),
            (Ids{5, 2, 4}));
  EXPECT_THROW(open({.config = R"({"add_bos_token": true, "bos_token": "gone"})"}), Unimplemented);
}

TEST_F(SpecialTokensOfVocabulary, AddedTokensOfAFileOfTheirOwnAreRead) {
  write_bpe();
  const std::string before = open({.model = kGpt2}).identity;
  folder_.write("added_tokens.json", R"({"<x>": 300, "<y>": 299})");
  using Ids = std::vector<TokenId>;
  const auto opened = open({.map = R"({"eos_token": "<x>"})", .model = kGpt2});
  EXPECT_EQ(opened.tokenizer->encode("a<x>b<y>", false), (Ids{0, 10, 1, 9}));
  EXPECT_EQ(opened.tokenizer->decode(Ids{0, 10, 9}, true), "a<y>");
  EXPECT_EQ(opened.eos, 10);
  EXPECT_NE(opened.identity, before);
  folder_.write("added_tokens.json", R"({"<x>": "300"})");
  EXPECT_THROW(open({}), InvalidArgument);
}

TEST_F(SpecialTokensOfVocabulary, OfWordPiecesStandAroundTexts) {
  folder_.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n<c>\n<s>\n");
  const Files bert = {.model = R"({"model_type": "bert"})"};
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(encode(bert, "a b"), (Ids{2, 5, 6, 3}));
  EXPECT_EQ(eos(bert), 3);
  const std::string before = open(bert).identity;
  const Files named = {.map = R"({"cls_token": "<c>", "sep_token": "<s>"})", .model = bert.model};
  EXPECT_EQ(encode(named, "a b"), (Ids{7, 5, 6, 8}));
  EXPECT_EQ(eos(named), 8);
  EXPECT_NE(open(named).identity, before);
  const Files repeated = {.map = R"({"cls_token": "[CLS]", "sep_token": "[SEP]"})"};
  EXPECT_EQ(open(repeated).identity, before) << "it says what was known";
  folder_.write("added_tokens.json", R"({"zzz": 20, "<q>": 21})");
  EXPECT_EQ(encode(bert, "a zzz b ZZZ <q>"), (Ids{2, 5, 9, 6, 9, 10, 3}));
  EXPECT_THROW(open({.model = R"({"model_type": "mpnet"})"}), Unimplemented);
}

}  // namespace
}  // namespace meshloom::text
