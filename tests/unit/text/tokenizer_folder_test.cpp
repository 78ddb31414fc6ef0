// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/tokenizer_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/text/golden_file.h"
#include "tests/unit/text/hex.h"

namespace meshloom::text {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// The folder's tokenizer makes of the golden texts what the golden one does.
void expect_golden(const fs::path& folder, const Json& cases) {
  const auto opened = open_tokenizer(folder);
  for (const auto& one : cases) {
    const std::vector<TokenId> tokens = one.at("tokens"), around = one.at("around");
    EXPECT_EQ(opened.tokenizer->encode(bytes_of(one.at("bytes")), false), tokens);
    EXPECT_EQ(opened.tokenizer->encode(bytes_of(one.at("bytes")), true), around);
    EXPECT_EQ(opened.tokenizer->decode(tokens, true), one.at("text").get<std::string>());
  }
}

TEST(TokenizerFolder, ReadsTokenizerJsonAndTheEndOfDocuments) {
  const test::TempFolder folder;
  const Json json = golden_file("gpt2");
  write(folder.path() / "tokenizer.json", json.at("tokenizer").dump());
  EXPECT_FALSE(open_tokenizer(folder.path()).eos.has_value());
  const std::string before = open_tokenizer(folder.path()).identity;
  write(folder.path() / "tokenizer_config.json", R"({"eos_token": {"content": "<|endoftext|>"}})");
  EXPECT_EQ(open_tokenizer(folder.path()).eos, 0);
  EXPECT_NE(open_tokenizer(folder.path()).identity, before);
  expect_golden(folder.path(), json.at("cases"));
}

TEST(TokenizerFolder, WhatLiesInThePlaceOfAFileIsNamed) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.txt"})
    for (const auto& [text, told] :
         {std::pair("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
          std::pair("<!DOCTYPE html><html></html>", "HTML page")}) {
      const test::TempFolder folder;
      write(folder.path() / name, text);
      try {
        open_tokenizer(folder.path());
        ADD_FAILURE() << name << " was read: " << text;
      } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what()).find(told), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
      }
    }
}

TEST(TokenizerFolder, ReadsVocabAndMergesOfGpt2AndQwen2) {
  for (const auto& [name, class_name] :
       {std::pair("gpt2", "GPT2Tokenizer"), std::pair("qwen2", "Qwen2TokenizerFast")}) {
    const test::TempFolder folder;
    const Json json = golden_file(name);
    const Json& model = json.at("tokenizer").at("model");
    write(folder.path() / "vocab.json", model.at("vocab").dump());
    std::string merges = "#version: 0.2\n";
    for (const auto& pair : model.at("merges"))
      merges += pair[0].get<std::string>() + " " + pair[1].get<std::string>() + "\n";
    write(folder.path() / "merges.txt", merges);
    Json config = {{"tokenizer_class", class_name}};
    for (Json token : json.at("tokenizer").at("added_tokens")) {
      const std::string id = std::to_string(token.at("id").get<int>());
      token.erase("id");
      config["added_tokens_decoder"][id] = token;
    }
    write(folder.path() / "tokenizer_config.json", config.dump());
    expect_golden(folder.path(), json.at("cases"));
    EXPECT_EQ(open_tokenizer(folder.path()).eos, 0);

    config["tokenizer_class"] = "StrangeTokenizer";
    write(folder.path() / "tokenizer_config.json", config.dump());
    EXPECT_THROW(open_tokenizer(folder.path()), Unimplemented);
  }
}

TEST(TokenizerFolder, ReadsVocabTxtOfBert) {
  for (const bool lowercase : {true, false}) {
    const test::TempFolder folder;
    const Json json = golden_file(lowercase ? "bert" : "bert_cased");
    std::vector<std::string> lines(json.at("tokenizer").at("model").at("vocab").size());
    for (const auto& [token, id] : json.at("tokenizer").at("model").at("vocab").items())
      lines.at(id.get<std::size_t>()) = token;
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    write(folder.path() / "vocab.txt", text);
    write(folder.path() / "tokenizer_config.json", Json{{"do_lower_case", lowercase}}.dump());
    Json cases = json.at("cases");
    // The goldens take shorter words than BERT for unknown, whose token is 1.
    std::erase_if(cases.get_ref<Json::array_t&>(), [](const Json& one) {
      const std::vector<TokenId> tokens = one.at("tokens");
      return std::count(tokens.begin(), tokens.end(), 1) > 0;
    });
    ASSERT_GE(cases.size(), 15u);
    expect_golden(folder.path(), cases);
    EXPECT_EQ(open_tokenizer(folder.path()).eos, 3);
  }
}

TEST(TokenizerFolder, SentencePieceModelsCountLast) {
  const test::TempFolder folder;
  write(folder.path() / "tokenizer.model", "any");
  EXPECT_TRUE(has_tokenizer(folder.path()));
  EXPECT_THROW(open_tokenizer(folder.path()), InvalidArgument);
  write(folder.path() / "vocab.json", "{}");
  EXPECT_THROW(open_tokenizer(folder.path()), InvalidArgument);
  // Beside a vocabulary that is known it does not count.
  write(folder.path() / "vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\n");
  EXPECT_EQ(open_tokenizer(folder.path()).tokenizer->encode("a", false), std::vector<TokenId>{3});
}

TEST(TokenizerFolder, RefusesWhatIsNoText) {
  const test::TempFolder folder;
  write(folder.path() / "vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\n");
  write(folder.path() / "tokenizer_config.json",
        R"({"added_tokens_decoder": {"3": {"content": 5}}})");
  EXPECT_THROW(open_tokenizer(folder.path()), InvalidArgument);
  fs::remove(folder.path() / "tokenizer_config.json");
  write(folder.path() / "vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\xFF\n");
  EXPECT_THROW(open_tokenizer(folder.path()), InvalidArgument);
}

TEST(TokenizerFolder, NamesWhatIsMissing) {
  const test::TempFolder folder;
  EXPECT_FALSE(has_tokenizer(folder.path()));
  write(folder.path() / "vocab.json", "{}");
  EXPECT_FALSE(has_tokenizer(folder.path()));
  EXPECT_THROW(open_tokenizer(folder.path()), NotFound);
  write(folder.path() / "merges.txt", "");
  write(folder.path() / "vocab.json", "{");
  EXPECT_THROW(open_tokenizer(folder.path()), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::text
