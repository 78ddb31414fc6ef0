// SPDX-License-Identifier: Apache-2.0
// Files as sentencepiece writes them, field by field: sound ones, and others.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace meshloom::text {

/// A map that replaces the texts that are this one byte.
inline std::string map_of(unsigned char byte, const std::string& normal) {
  std::vector<std::uint32_t> units(512);
  units[0] = 256u << 10;                           // the children lie from 256 on
  units[256u ^ byte] = byte | 1u << 8 | 1u << 10;  // and the value beside the child
  std::string map(sizeof(std::uint32_t) * (1 + units.size()), '\0');
  const auto bytes = static_cast<std::uint32_t>(sizeof(std::uint32_t) * units.size());
  std::memcpy(map.data(), &bytes, sizeof bytes);
  std::memcpy(map.data() + sizeof bytes, units.data(), bytes);
  return map + normal + '\0';
}

inline std::string number_field(int field, char value) {
  return {static_cast<char>(field << 3), value};
}
inline std::string bytes_field(int field, const std::string& bytes) {
  std::string out(1, static_cast<char>(field << 3 | 2));
  std::size_t size = bytes.size();
  for (; size >= 0x80; size >>= 7) out += static_cast<char>(size | 0x80);
  return out + static_cast<char>(size) + bytes;
}

inline constexpr char kUnknownType = 2, kByteType = 6, kUnigramModel = 1, kBpeModel = 2;

inline std::string piece_field(const std::string& text, float score, char type = 1) {
  std::string number(sizeof score, '\0');
  std::memcpy(number.data(), &score, sizeof score);
  return bytes_field(
      1, bytes_field(1, text) + static_cast<char>(2 << 3 | 5) + number + number_field(3, type));
}

/// A tokenizer.model of "<unk>", "a" and more pieces, without a blank in front of texts.
inline std::string model_of(char kind, const std::string& pieces, const std::string& map) {
  return piece_field("<unk>", 0, kUnknownType) + piece_field("a", -1) + pieces +
         bytes_field(2, number_field(3, kind)) +
         bytes_field(3, bytes_field(2, map) + number_field(3, 0));
}

}  // namespace meshloom::text
