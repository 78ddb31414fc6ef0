// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/tokenizer_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/text/tokenizer_folder.h"
#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"

namespace meshloom::text {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kSpecial = {"<|endoftext|>", "[MASK]", "<pad>"};

TrainedBpe trained_bpe() {
  return train_bpe({{"the", 9}, {" the", 20}, {" fox", 5}, {"\xC3\xA9t\xC3\xA9", 4}},
                   {.vocab_size = 268, .special = kSpecial});
}

TEST(TokenizerOutput, IsReadByOurOwnReader) {
  const test::TempFolder folder;
  const TrainedBpe trained = trained_bpe();
  ASSERT_EQ(trained.tokens.size(), 268u);
  TokenizerOutput output(folder / "made");
  output.commit(trained, kSpecial);
  const FolderTokenizer read = open_tokenizer(folder / "made");
  EXPECT_EQ(read.eos, 0);
  EXPECT_EQ(read.mask, 1);
  EXPECT_THAT(read.special, ElementsAre(0, 1, 2));
  const Tokenizer& tokenizer = *read.tokenizer;
  EXPECT_EQ(tokenizer.end(), 268);
  for (std::size_t id = 0; id < trained.tokens.size(); ++id)
    EXPECT_EQ(tokenizer.find(trained.tokens[id]), static_cast<TokenId>(id));
  const auto fox = tokenizer.encode("the fox the[MASK] \xC3\xA9t\xC3\xA9\n\u6587", true);
  EXPECT_EQ(fox.front(), tokenizer.find("the"));
  EXPECT_EQ(std::count(fox.begin(), fox.end(), 1), 1);
  EXPECT_EQ(tokenizer.decode(fox, false), "the fox the[MASK] \xC3\xA9t\xC3\xA9\n\u6587");
  // Every byte stands for itself.
  for (int byte = 0; byte < 256; ++byte) {
    const std::vector<std::uint32_t> bytes = tokenizer.token_bytes();
    ASSERT_EQ(bytes.size(), 268u);
    EXPECT_EQ(bytes[3 + static_cast<std::size_t>(byte)], 1u);
    EXPECT_EQ(bytes[0] + bytes[1] + bytes[2], 0u);
  }
  EXPECT_EQ(tokenizer.token_bytes()[static_cast<std::size_t>(*tokenizer.find("the"))], 3u);
}

TEST(TokenizerOutput, NamesTheParts) {
  const auto config = nlohmann::json::parse(tokenizer_config_text(kSpecial));
  EXPECT_EQ(config["eos_token"], "<|endoftext|>");
  EXPECT_EQ(config["mask_token"], "[MASK]");
  EXPECT_EQ(config["pad_token"], "<pad>");
  EXPECT_FALSE(config.contains("bos_token"));
  EXPECT_FALSE(nlohmann::json::parse(tokenizer_config_text({})).contains("eos_token"));
}

TEST(TokenizerOutput, NeverOverwritesATokenizer) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt",
                           "vocab.txt", "tokenizer.model"}) {
    const test::TempFolder folder;
    folder.write(std::string("made/") + name, "as it was");
    try {
      TokenizerOutput output(folder / "made");
      FAIL() << name;
    } catch (const AlreadyExists& error) {
      EXPECT_EQ(error.reason(), "TOKENIZER_EXISTS");
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
    EXPECT_EQ(fs::file_size(folder / "made" / name), 9u);
  }
}

TEST(TokenizerOutput, AFileThatCameMeanwhileStaysAndNothingElseIsLeft) {
  const test::TempFolder folder;
  {
    TokenizerOutput output(folder / "made");
    folder.write("made/tokenizer.json", "another's");
    EXPECT_THROW(output.commit(trained_bpe(), kSpecial), AlreadyExists);
  }
  EXPECT_EQ(fs::file_size(folder / "made/tokenizer.json"), 9u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "made"), fs::directory_iterator()), 1);
}

TEST(TokenizerOutput, WithoutCommitEverythingIsAsItWas) {
  const test::TempFolder folder;
  { TokenizerOutput output(folder / "new"); }
  EXPECT_FALSE(fs::exists(folder / "new"));
  folder.write("old/config.json", "{}");
  { TokenizerOutput output(folder / "old"); }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "old"), fs::directory_iterator()), 1);
  EXPECT_THROW(TokenizerOutput(folder / "no/such/parent"), Error);
  folder.write("file", "x");
  EXPECT_THROW(TokenizerOutput(folder / "file"), Error);
}

}  // namespace
}  // namespace meshloom::text
