// SPDX-License-Identifier: Apache-2.0
// Text as UTF-8 inside this folder: read a character, append one, replace parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace meshloom::text {

/// Returns the bytes of the character that begins with `first`, in valid UTF-8.
inline std::size_t utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// Takes the character at `text`, which is valid UTF-8 and not at its end; moves `text` past it.
inline char32_t next_char(const char*& text) {
  const auto byte = [&](int i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    ++text;
    return first;
  }
  char32_t c;
  if (first < 0xE0) {
    c = (first & 0x1Fu) << 6 | (byte(1) & 0x3Fu);
    text += 2;
  } else if (first < 0xF0) {
    c = (first & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    text += 3;
  } else {
    c = (first & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 |
        (byte(3) & 0x3Fu);
    text += 4;
  }
  return c;
}

/// `text` is valid UTF-8 and not empty; removes its last character and returns it.
char32_t pop_char(std::string_view& text);

void append_utf8(char32_t c, std::string& out);

class Budget;

/// `what` is not empty. `part` is whose steps and bytes they are.
void replace_all(std::string& text, std::string_view what, std::string_view with, Budget& budget,
                 const char* part);

/// Returns the text itself if it is valid UTF-8; else `storage`, filled with the text in which
/// U+FFFD stands for every longest part that could begin a character and does not, as Python's
/// decode('utf-8', 'replace') has it.
std::string_view valid_utf8(std::string_view bytes, std::string& storage);

}  // namespace meshloom::text
