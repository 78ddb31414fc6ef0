// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/token_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "kernels/base/error.h"
#include "tests/unit/train/data_files.h"

namespace meshloom::train {
namespace {

using testing::DataFolder;
using ::testing::HasSubstr;

std::vector<std::int64_t> all_tokens(const TokenStream& stream) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(stream.size()));
  stream.read(0, tokens);
  return tokens;
}

template <typename E>
std::string error_of(const std::filesystem::path& path, TokenFormat format) {
  try {
    TokenStream::open(path, format);
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

class TokenStreamTest : public ::testing::Test {
 protected:
  DataFolder folder_;
};

TEST_F(TokenStreamTest, TextIsBytes) {
  const auto path = folder_.write_text("a.txt", std::string("h\xffi\n\0z", 6));
  const TokenStream stream = TokenStream::open(path, TokenFormat::kText);
  EXPECT_EQ(stream.format(), TokenFormat::kText);
  EXPECT_EQ(all_tokens(stream), (std::vector<std::int64_t>{'h', 255, 'i', '\n', 0, 'z'}));
  // Nobody has said that a file with a zero byte is text.
  EXPECT_THAT(error_of<InvalidArgument>(path, TokenFormat::kAuto), HasSubstr("zero byte at 4"));
  const auto text = folder_.write_text("b.txt", "h\xffi");
  EXPECT_EQ(TokenStream::open(text, TokenFormat::kAuto).format(), TokenFormat::kText);
}

TEST_F(TokenStreamTest, OtherKindsOfFilesAreNoText) {
  for (const char* name : {"a.npy", "a.parquet", "a.gz"})
    EXPECT_THAT(error_of<InvalidArgument>(folder_.write_text(name, "abc"), TokenFormat::kAuto),
                HasSubstr("expected files of text"));
  folder_.write_text("lines/a.jsonl", "{}");
  folder_.write_text("lines/b.txt", "text");
  EXPECT_EQ(find_data_files(folder_.path() / "lines", TokenFormat::kAuto).format,
            TokenFormat::kJsonLines);
}

TEST_F(TokenStreamTest, WhatLiesInThePlaceOfTokensIsNamed) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
  const std::string page = "<!DOCTYPE html>\n<html></html>\n";
  for (const TokenFormat format :
       {TokenFormat::kAuto, TokenFormat::kText, TokenFormat::kNanogpt, TokenFormat::kLlmc})
    for (const char* name : {"a.txt", "a.bin"})
      EXPECT_THAT(error_of<InvalidArgument>(folder_.write_text(name, pointer), format),
                  HasSubstr("git lfs pull"))
          << name;
  for (const TokenFormat format : {TokenFormat::kAuto, TokenFormat::kNanogpt, TokenFormat::kLlmc})
    EXPECT_THAT(error_of<InvalidArgument>(folder_.write_text("a.bin", page), format),
                HasSubstr("HTML page"));
  // A page is text, too.
  EXPECT_EQ(TokenStream::open(folder_.write_text("page.html", page), TokenFormat::kText).size(),
            static_cast<std::int64_t>(page.size()));
  EXPECT_THAT(error_of<InvalidArgument>(folder_.write_text("a.jsonl", pointer), TokenFormat::kAuto),
              HasSubstr("git lfs pull"));
}

TEST_F(TokenStreamTest, FolderIsReadInOrderOfNamesWithoutHiddenAndEmptyFiles) {
  folder_.write_text("text/b.txt", "22");
  folder_.write_text("text/a/z.txt", "1");
  folder_.write_text("text/empty.txt", "");
  folder_.write_text("text/.hidden", "no");
  folder_.write_text("text/.git/config", "no");
  const TokenStream stream = TokenStream::open(folder_.path() / "text", TokenFormat::kAuto);
  EXPECT_EQ(all_tokens(stream), (std::vector<std::int64_t>{'1', '2', '2'}));
  EXPECT_EQ(stream.file_starts(), (std::vector<std::int64_t>{0, 1}));
  EXPECT_THAT(stream.file_of(2), HasSubstr("b.txt"));
}

TEST_F(TokenStreamTest, ReadsBothMagicsOfLlmc) {
  const auto narrow = folder_.write_llmc("narrow.bin", 20240520, 1, {1, 50256, 65535});
  const auto wide = folder_.write_llmc("wide.bin", 20240801, 7, {1, 128000, 0xfffffff0});
  EXPECT_EQ(all_tokens(TokenStream::open(narrow, TokenFormat::kAuto)),
            (std::vector<std::int64_t>{1, 50256, 65535}));
  const TokenStream stream = TokenStream::open(wide, TokenFormat::kAuto);
  EXPECT_EQ(stream.format(), TokenFormat::kLlmc);
  EXPECT_EQ(all_tokens(stream), (std::vector<std::int64_t>{1, 128000, 0xfffffff0}));
}

TEST_F(TokenStreamTest, JoinsShardsOfAFolder) {
  folder_.write_llmc("shards/train_000.bin", 20240520, 1, {1, 2, 3});
  folder_.write_llmc("shards/train_001.bin", 20240520, 1, {4, 5});
  folder_.write_text("shards/notes.md", "not tokens");
  const TokenStream stream = TokenStream::open(folder_.path() / "shards", TokenFormat::kLlmc);
  EXPECT_EQ(all_tokens(stream), (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  std::vector<std::int64_t> across(3);
  stream.read(2, across);
  EXPECT_EQ(across, (std::vector<std::int64_t>{3, 4, 5}));
  EXPECT_THAT(error_of<InvalidArgument>(folder_.path() / "shards", TokenFormat::kAuto),
              HasSubstr("different formats"));
}

TEST_F(TokenStreamTest, ReadsNanogpt) {
  const auto path = folder_.write_u16("train.bin", {7, 0, 50256});
  const TokenStream stream = TokenStream::open(path, TokenFormat::kAuto);
  EXPECT_EQ(stream.format(), TokenFormat::kNanogpt);
  EXPECT_EQ(all_tokens(stream), (std::vector<std::int64_t>{7, 0, 50256}));
}

TEST_F(TokenStreamTest, RefusesDamagedFiles) {
  const auto version = folder_.write_llmc("version.bin", 20240520, 7, {1});
  EXPECT_THAT(error_of<InvalidArgument>(version, TokenFormat::kAuto), HasSubstr("version 7"));
  const auto cut = folder_.write_llmc("cut.bin", 20240520, 1, {1, 2, 3});
  std::filesystem::resize_file(cut, 1024 + 4);
  EXPECT_THAT(error_of<InvalidArgument>(cut, TokenFormat::kAuto), HasSubstr("names 3 tokens"));
  const auto odd = folder_.write_text("odd.bin", "abc");
  EXPECT_THAT(error_of<InvalidArgument>(odd, TokenFormat::kAuto), HasSubstr("even number"));
  const auto other = folder_.write_llmc("eval.bin", 20240522, 1, {1});
  EXPECT_THAT(error_of<InvalidArgument>(other, TokenFormat::kAuto), HasSubstr("magic 20240522"));
  const auto small = folder_.write_text("small.bin", "abcd");
  EXPECT_THAT(error_of<InvalidArgument>(small, TokenFormat::kLlmc), HasSubstr("less than"));
  EXPECT_THAT(error_of<InvalidArgument>(folder_.write_text("none.txt", ""), TokenFormat::kAuto),
              HasSubstr("empty"));
  std::filesystem::create_directory(folder_.path() / "nothing");
  EXPECT_THAT(error_of<InvalidArgument>(folder_.path() / "nothing", TokenFormat::kAuto),
              HasSubstr("no files"));
  EXPECT_THAT(error_of<NotFound>(folder_.path() / "missing.txt", TokenFormat::kAuto),
              HasSubstr("does not exist"));
}

TEST_F(TokenStreamTest, RefusesLinksThatLeadOutside) {
  const DataFolder other;
  const auto secret = other.write_text("secret.txt", "secret");
  folder_.write_text("text/a.txt", "fine");
  std::filesystem::create_symlink(secret, folder_.path() / "text/b.txt");
  EXPECT_THROW(TokenStream::open(folder_.path() / "text", TokenFormat::kText, folder_.path()),
               InvalidArgument);
  EXPECT_NO_THROW(TokenStream::open(folder_.path() / "text", TokenFormat::kText));
}

}  // namespace
}  // namespace meshloom::train
