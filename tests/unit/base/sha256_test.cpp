// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace meshloom::base {
namespace {

std::string digest_of(const std::string& text) {
  Sha256 digest;
  digest.update(std::as_bytes(std::span(text)));
  return digest.hex();
}

TEST(Sha256, HasTheValuesOfFips180) {
  EXPECT_EQ(digest_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveTheSameAndMayGoOnAfterADigest) {
  Sha256 digest;
  const std::string text = "abc";
  digest.update(std::as_bytes(std::span(text)).first(1));
  EXPECT_EQ(digest.hex(), digest_of("a"));
  digest.update(std::as_bytes(std::span(text)).subspan(1));
  EXPECT_EQ(digest.hex(), digest_of("abc"));
}

TEST(Sha256, TellsItsSpellingFromOthers) {
  const std::string good(64, 'a');
  EXPECT_TRUE(is_sha256(good));
  for (const std::string& bad : {std::string(63, 'a'), std::string(65, 'a'), std::string(64, 'A'),
                                 std::string(64, 'g'), std::string()})
    EXPECT_FALSE(is_sha256(bad)) << bad;
}

}  // namespace
}  // namespace meshloom::base
