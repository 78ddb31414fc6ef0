// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/token_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "kernels/base/error.h"
#include "tests/support/file_text.h"
#include "tests/support/reason_of.h"
#include "tests/support/temp_folder.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

/// Whether it holds within this time.
template <typename Condition>
bool holds_within(std::chrono::milliseconds time, const Condition& holds) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!holds()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

class TokenStoreTest : public ::testing::Test {
 protected:
  void put(const std::string& text, mode_t mode = 0600) const {
    folder_.write("tokens", text);
    ::chmod(path_.c_str(), mode);
  }

  test::TempFolder folder_;
  const fs::path path_ = folder_ / "tokens";
};

TEST_F(TokenStoreTest, ATokenIsKnownUntilItIsRevoked) {
  TokenStore store(path_);
  EXPECT_TRUE(store.empty());
  const auto issued = store.create("alice", Role::kSubmitter, std::nullopt);
  const auto found = store.find(issued.token);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "alice");
  EXPECT_EQ(found->role, Role::kSubmitter);
  for (std::string wrong : {std::string(), std::string("x"), issued.token + "0",
                            issued.token.substr(0, issued.token.size() - 1),
                            issued.token.substr(0, 21), "mlt_" + std::string(81, '0')})
    EXPECT_FALSE(store.find(wrong)) << wrong;
  EXPECT_EQ(test::reason_of([&] { store.create("alice", Role::kAdmin, {}); }), "TOKEN_EXISTS");
  store.revoke("alice");
  EXPECT_FALSE(store.find(issued.token));
  EXPECT_EQ(test::reason_of([&] { store.revoke("alice"); }), "TOKEN_NOT_FOUND");
}

TEST_F(TokenStoreTest, TheFileHoldsNoSecretAndIsPrivate) {
  TokenStore store(path_);
  const auto issued = store.create("alice", Role::kViewer, std::nullopt);
  const std::string secret = issued.token.substr(21);
  EXPECT_EQ(secret.size(), 64u);
  EXPECT_THAT(test::file_text(path_), Not(HasSubstr(secret)));
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  // What another start reads is the same.
  EXPECT_TRUE(TokenStore(path_).find(issued.token));
}

TEST_F(TokenStoreTest, ARotatedTokenTakesThePlaceOfTheOldOne) {
  TokenStore store(path_);
  const auto old = store.create("ci", Role::kSubmitter, std::nullopt);
  const auto fresh = store.rotate("ci", std::nullopt);
  EXPECT_FALSE(store.find(old.token));
  ASSERT_TRUE(store.find(fresh.token));
  EXPECT_EQ(store.find(fresh.token)->role, Role::kSubmitter);
  EXPECT_EQ(store.list().size(), 1u);
}

TEST_F(TokenStoreTest, ATokenExpires) {
  TokenStore store(path_);
  const auto issued = store.create("brief", Role::kViewer, 1s);
  EXPECT_TRUE(holds_within(5s, [&] { return !store.find(issued.token); }));
}

TEST_F(TokenStoreTest, AChangeOfAnotherHandCountsWithinTwoSeconds) {
  TokenStore store(path_), other(path_);
  const auto issued = other.create("alice", Role::kViewer, std::nullopt);
  EXPECT_TRUE(holds_within(2s, [&] { return store.find(issued.token).has_value(); }));
  other.revoke("alice");
  EXPECT_TRUE(holds_within(2s, [&] { return !store.find(issued.token); }));
}

TEST_F(TokenStoreTest, WhatIsNoPrivateFileOfTokensIsRefused) {
  {
    TokenStore store(path_);
    store.create("alice", Role::kViewer, std::nullopt);
  }
  const std::string good = test::file_text(path_);
  const auto refusal = [&] { return test::reason_of([&] { TokenStore store(path_); }); };
  EXPECT_EQ(refusal(), "");
  ::chmod(path_.c_str(), 0644);
  EXPECT_EQ(refusal(), "TOKENS_NOT_PRIVATE");
  put(good.substr(0, good.size() / 2));
  EXPECT_EQ(refusal(), "TOKENS_DAMAGED");
  put("");
  EXPECT_EQ(refusal(), "TOKENS_DAMAGED");
  put("{\"version\": 1, \"tokens\": [{\"name\": 3}]}");
  EXPECT_EQ(refusal(), "TOKENS_DAMAGED");
  put("{\"version\": 1, \"tokens\": [{\"name\": \"Alice\", \"role\": \"viewer\"}]}");
  EXPECT_EQ(refusal(), "TOKENS_DAMAGED");
  put(std::string(10'000'000, ' '));
  EXPECT_EQ(refusal(), "TOKENS_TOO_LARGE");
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_EQ(refusal(), "TOKENS_UNREADABLE");
}

TEST_F(TokenStoreTest, ABadFileLeavesTheTokensOfBefore) {
  TokenStore store(path_);
  const auto issued = store.create("alice", Role::kViewer, std::nullopt);
  const std::string good = test::file_text(path_);
  put(good.substr(0, good.size() / 2));
  EXPECT_TRUE(holds_within(3s, [&] { return !store.trouble().empty(); }));
  EXPECT_THAT(store.trouble(), HasSubstr("half written"));
  EXPECT_TRUE(store.find(issued.token));
  // A change must not destroy what somebody may want to mend.
  EXPECT_EQ(test::reason_of([&] { store.create("bob", Role::kViewer, {}); }), "TOKENS_DAMAGED");
  put(good);
  EXPECT_TRUE(holds_within(3s, [&] { return store.trouble().empty(); }));
  EXPECT_TRUE(store.find(issued.token));
}

TEST_F(TokenStoreTest, NamesAreOfOneSpelling) {
  TokenStore store(path_);
  for (const std::string name : {"", "Alice", "a b", "-a", "..", "a/b", "\xC3\xA4", ".a"})
    EXPECT_EQ(test::reason_of([&] { store.create(name, Role::kViewer, {}); }), "NAME_INVALID")
        << name;
  EXPECT_EQ(test::reason_of([&] { store.create("admin", Role::kViewer, {}); }), "NAME_RESERVED");
  EXPECT_EQ(test::reason_of([&] { store.create(std::string(64, 'a'), Role::kViewer, {}); }),
            "NAME_INVALID");
  store.create("alice@example.org", Role::kViewer, std::nullopt);
  store.create(std::string(63, 'a'), Role::kViewer, std::nullopt);
  EXPECT_EQ(store.list().size(), 2u);
}

}  // namespace
}  // namespace meshloom::control
