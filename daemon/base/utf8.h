// SPDX-License-Identifier: Apache-2.0
// Bytes of unknown origin as text: what may stand in a proto string, a log line or JSON.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace meshloom::base {

/// Returns the number of continuation bytes that follow a first byte; -1 for bytes that begin no
/// character.
int utf8_continuation_bytes(unsigned char first);
/// Tells whether the second byte fits: overlong forms, surrogates and code points above U+10FFFF
/// show in the second byte.
bool utf8_second_byte_fits(unsigned char first, unsigned char second);

/// Tells whether a byte goes on with a character that bytes before it have begun.
constexpr bool utf8_continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

/// Returns how many bytes of a text stay, `most` at most, where it is cut between two characters.
constexpr std::size_t utf8_cut(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text.size();
  while (most > 0 && utf8_continues(text[most])) --most;
  return most;
}

/// Tells whether all of it is UTF-8.
bool is_utf8(std::string_view bytes);

/// Returns the text with control characters and bytes that are not UTF-8 written as \xNN; a newline
/// stays if `keep_newlines`. At most `most` bytes, cut between characters.
std::string printable_text(std::string_view bytes, std::size_t most = std::string::npos,
                           bool keep_newlines = true);

}  // namespace meshloom::base
