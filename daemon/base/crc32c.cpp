// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace meshloom::base {
namespace {

constexpr std::uint32_t kReversedPolynomial = 0x82F63B78;
constexpr std::size_t kWord = 8;

using Tables = std::array<std::array<std::uint32_t, 256>, kWord>;

/// tables[k][b]: what byte b adds when k more bytes follow it in its word.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < kWord; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = before >> 8 ^ tables[0][before & 0xFF];
    }
  return tables;
}

constexpr Tables kTables = make_tables();

static_assert(std::endian::native == std::endian::little, "words are read as little-endian");

std::uint64_t load_word(const std::byte* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, kWord);
  return word;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(std::span<const std::byte> bytes) {
  std::uint64_t crc = 0xFFFFFFFF;
  std::size_t i = 0;
  for (; i + kWord <= bytes.size(); i += kWord) crc = _mm_crc32_u64(crc, load_word(&bytes[i]));
  auto rest = static_cast<std::uint32_t>(crc);
  for (; i < bytes.size(); ++i) rest = _mm_crc32_u8(rest, static_cast<unsigned char>(bytes[i]));
  return ~rest;
}
#endif

}  // namespace

std::uint32_t crc32c_portable(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  std::size_t i = 0;
  for (; i + kWord <= bytes.size(); i += kWord) {
    const std::uint64_t word = load_word(&bytes[i]) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < kWord; ++k) crc ^= kTables[kWord - 1 - k][word >> (8 * k) & 0xFF];
  }
  for (; i < bytes.size(); ++i)
    crc = crc >> 8 ^ kTables[0][(crc ^ static_cast<std::uint32_t>(bytes[i])) & 0xFF];
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return crc32c_sse42(bytes);
#endif
  return crc32c_portable(bytes);
}

}  // namespace meshloom::base
