// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/token_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <thread>

#include "daemon/base/files.h"
#include "daemon/text/byte_tokenizer.h"
#include "daemon/text/token_file.h"
#include "kernels/base/error.h"
#include "tests/support/reason_of.h"
#include "tests/support/temp_folder.h"

namespace meshloom::train {
namespace {

using test::reason_of;

namespace fs = std::filesystem;

constexpr std::uint64_t kPlenty = 1 << 20;

class TokenCacheTest : public ::testing::Test {
 protected:
  TokenCache::Text text(const std::string& content, const std::string& name = "a.txt") const {
    return {.files = {text::document_file(folder_.write(name, content))},
            .tokenizer = &tokenizer_,
            .encode = {.end = 7, .threads = 2},
            .identity = "bytes"};
  }
  static void nothing(std::uint64_t, std::uint64_t) {}
  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(cache_))
      count += entry.path().filename() != "lock";
    return count;
  }

  test::TempFolder folder_;
  fs::path cache_ = folder_ / "cache";
  text::ByteTokenizer tokenizer_;
};

TEST_F(TokenCacheTest, AFileIsMadeOnceForTheSameTextAndTokenizer) {
  TokenCache cache(cache_, kPlenty);
  const fs::path first = cache.get(text("abc"), nothing);
  EXPECT_EQ(text::TokenFile(first).read(0, 10), (std::vector<text::TokenId>{'a', 'b', 'c', 7}));
  // A new one would be another file.
  fs::create_hard_link(first, folder_ / "link");
  EXPECT_EQ(TokenCache(cache_, kPlenty).get(text("abc", "renamed.txt"), nothing), first);
  EXPECT_EQ(fs::hard_link_count(first), 2u);
  EXPECT_NE(cache.get(text("abd"), nothing), first);
  TokenCache::Text other = text("abc");
  other.identity = "others";
  EXPECT_NE(cache.get(other, nothing), first);
  EXPECT_EQ(files(), 3u);
}

TEST_F(TokenCacheTest, HalfAFileIsNeverTaken) {
  TokenCache cache(cache_, kPlenty);
  const fs::path path = cache.get(text("abc"), nothing);
  fs::resize_file(path, fs::file_size(path) - 1);
  std::ofstream(cache_ / "killed.tokens.new") << "half of it";
  EXPECT_EQ(cache.get(text("abc"), nothing), path);
  EXPECT_EQ(text::TokenFile(path).size(), 4);
  EXPECT_EQ(files(), 1u);
}

TEST_F(TokenCacheTest, AFileThatCannotBeOpenedNowStays) {
  TokenCache cache(cache_, kPlenty);
  const TokenCache::Text text = this->text("abc");
  const fs::path path = cache.get(text, nothing);
  // One descriptor is left, which the lock takes.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few = {256, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<base::UniqueFd> taken;
  for (int fd; (fd = ::dup(STDERR_FILENO)) >= 0;) taken.emplace_back(fd);
  taken.pop_back();
  EXPECT_EQ(reason_of([&] { cache.get(text, nothing); }), "IO_ERROR");
  taken.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(fs::exists(path));
  EXPECT_EQ(cache.get(text, nothing), path);
}

TEST_F(TokenCacheTest, WhatProgressThrowsLeavesNothing) {
  TokenCache cache(cache_, kPlenty);
  EXPECT_THROW(cache.get(text("abc"),
                         [](std::uint64_t bytes, std::uint64_t) {
                           if (bytes > 0) throw std::runtime_error("stopped");
                         }),
               std::runtime_error);
  EXPECT_EQ(files(), 0u);
}

TEST_F(TokenCacheTest, TextThatChangesMeanwhileIsRefused) {
  TokenCache cache(cache_, kPlenty);
  const TokenCache::Text changing = text("abc");
  EXPECT_EQ(reason_of([&] {
              cache.get(changing, [&](std::uint64_t bytes, std::uint64_t) {
                if (bytes > 0) folder_.write("a.txt", "abcd");
              });
            }),
            "DATA_CHANGED");
  EXPECT_EQ(files(), 0u);
}

TEST_F(TokenCacheTest, WhatWasUsedLongestAgoMakesRoom) {
  constexpr std::uint64_t kTwo = 2 * (1024 + 4 * 4);
  const fs::path first = TokenCache(cache_, kTwo).get(text("aaa"), nothing);
  const fs::path second = TokenCache(cache_, kTwo).get(text("bbb"), nothing);
  fs::last_write_time(second, fs::file_time_type::clock::now() - std::chrono::hours(2));
  fs::last_write_time(first, fs::file_time_type::clock::now() - std::chrono::hours(1));
  TokenCache cache(cache_, kTwo);
  const fs::path third = cache.get(text("ccc"), nothing);
  EXPECT_TRUE(fs::exists(first));
  EXPECT_FALSE(fs::exists(second));
  // What one object has given out stays.
  cache.get(text("ddd"), nothing);
  cache.get(text("eee"), nothing);
  EXPECT_TRUE(fs::exists(third));
  EXPECT_FALSE(fs::exists(first));
  EXPECT_EQ(reason_of([&] { TokenCache(cache_, 1024 + 12).get(text("fff"), nothing); }),
            "TOKEN_CACHE_FULL");
}

TEST_F(TokenCacheTest, OneWritesWhileOthersWait) {
  const TokenCache::Text shared = text("abc");
  std::vector<fs::path> paths(4);
  {
    std::vector<std::jthread> threads;
    for (fs::path& path : paths)
      threads.emplace_back([&] { path = TokenCache(cache_, kPlenty).get(shared, nothing); });
  }
  for (const fs::path& path : paths) EXPECT_EQ(path, paths.front());
  EXPECT_EQ(text::TokenFile(paths.front()).size(), 4);
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace meshloom::train
