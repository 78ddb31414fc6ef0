// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/utf8.h"

#include <fmt/format.h>

namespace meshloom::base {
namespace {

constexpr unsigned char kDelete = 0x7F;

/// Bytes of the character that `bytes` begins with; 0 if it begins with none.
std::size_t character_length(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const int more = utf8_continuation_bytes(at(0));
  const auto length = static_cast<std::size_t>(more + 1);
  if (more < 0 || length > bytes.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if (!utf8_continues(bytes[i])) return 0;
  return more > 0 && !utf8_second_byte_fits(at(0), at(1)) ? 0 : length;
}

bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  // U+0080 to U+009F are controls too, and terminals obey some of them.
  if (first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0) return true;
  return first < 0x20 || first == kDelete;
}

}  // namespace

int utf8_continuation_bytes(unsigned char first) {
  if (first < 0x80) return 0;
  if (first >= 0xC2 && first <= 0xDF) return 1;
  if (first >= 0xE0 && first <= 0xEF) return 2;
  if (first >= 0xF0 && first <= 0xF4) return 3;
  return -1;
}

bool utf8_second_byte_fits(unsigned char first, unsigned char second) {
  switch (first) {
    case 0xE0: return second >= 0xA0;
    case 0xED: return second < 0xA0;
    case 0xF0: return second >= 0x90;
    case 0xF4: return second < 0x90;
    default: return true;
  }
}

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t length = character_length(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

std::string printable_text(std::string_view bytes, std::size_t most, bool keep_newlines) {
  std::string out;
  while (!bytes.empty()) {
    const std::size_t length = character_length(bytes);
    const std::string_view character = bytes.substr(0, length == 0 ? 1 : length);
    bytes.remove_prefix(character.size());
    const bool newline = keep_newlines && character == "\n";
    std::string shown(character);
    if (length == 0 || (is_control(character) && !newline)) {
      shown.clear();
      for (const char byte : character)
        shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
    if (out.size() + shown.size() > most) break;
    out += shown;
  }
  return out;
}

}  // namespace meshloom::base
