// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace meshloom::base {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// Bit by bit, from the definition.
std::uint32_t by_definition(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const std::byte byte : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const std::uint32_t out = (crc ^ static_cast<std::uint32_t>(byte) >> bit) & 1;
      crc = crc >> 1 ^ (out != 0 ? 0x82F63B78U : 0U);
    }
  return ~crc;
}

TEST(Crc32c, HasTheValuesOfRfc3720) {
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8A9136AAU);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xFF'))), 0x62A8AB43U);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  EXPECT_EQ(crc32c(bytes_of(rising)), 0x46DD794EU);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283U);
  EXPECT_EQ(crc32c({}), 0U);
}

TEST(Crc32c, AllWaysAgreeOnAnyLengthAndAlignment) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(300);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (std::size_t begin = 0; begin < 9; ++begin)
    for (std::size_t size = 0; begin + size <= bytes.size(); ++size) {
      const auto part = std::span<const std::byte>(bytes).subspan(begin, size);
      const std::uint32_t expected = by_definition(part);
      ASSERT_EQ(crc32c(part), expected) << begin << " " << size;
      ASSERT_EQ(crc32c_portable(part), expected) << begin << " " << size;
    }
}

}  // namespace
}  // namespace meshloom::base
