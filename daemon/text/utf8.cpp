// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/utf8.h"

#include <algorithm>

#include "daemon/base/utf8.h"
#include "daemon/text/budget.h"

namespace meshloom::text {
namespace {

/// Bytes at the front of `bytes` that are one character, or that could begin one (`whole` false).
std::size_t first_part(std::string_view bytes, bool& whole) {
  const auto first = static_cast<unsigned char>(bytes[0]);
  const int more = base::utf8_continuation_bytes(first);
  whole = more == 0;
  if (more <= 0) return 1;
  std::size_t length = 1;
  while (length <= static_cast<std::size_t>(more) && length < bytes.size()) {
    if (!base::utf8_continues(bytes[length])) break;
    const auto byte = static_cast<unsigned char>(bytes[length]);
    if (length == 1 && !base::utf8_second_byte_fits(first, byte)) break;
    ++length;
  }
  whole = length == static_cast<std::size_t>(more) + 1;
  return length;
}

}  // namespace

char32_t pop_char(std::string_view& text) {
  std::size_t at = text.size() - 1;
  while (base::utf8_continues(text[at])) --at;
  const char* from = text.data() + at;
  text.remove_suffix(text.size() - at);
  return next_char(from);
}

void append_utf8(char32_t c, std::string& out) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string_view valid_utf8(std::string_view bytes, std::string& storage) {
  if (base::is_utf8(bytes)) return bytes;
  storage.clear();
  storage.reserve(bytes.size() + bytes.size() / 8);
  while (!bytes.empty()) {
    const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
    const auto ascii = std::find_if_not(bytes.begin(), bytes.end(), is_ascii) - bytes.begin();
    storage.append(bytes.substr(0, static_cast<std::size_t>(ascii)));
    bytes.remove_prefix(static_cast<std::size_t>(ascii));
    if (bytes.empty()) break;
    bool whole = false;
    const std::size_t length = first_part(bytes, whole);
    storage.append(whole ? bytes.substr(0, length) : std::string_view("\xEF\xBF\xBD"));
    bytes.remove_prefix(length);
  }
  return storage;
}

void replace_all(std::string& text, std::string_view what, std::string_view with, Budget& budget,
                 const char* part) {
  // The search looks at up to all of `what` at every place.
  budget.spend(1 + text.size() * (1 + what.size() / 32), part);
  std::string out;
  std::size_t from = 0;
  for (std::size_t at; (at = text.find(what, from)) != std::string::npos; from = at + what.size()) {
    budget.spend(with.size() / 8, part);
    budget.check_bytes(out.size() + with.size(), part);
    out.append(text, from, at - from).append(with);
  }
  text = out.append(text, from);
}

}  // namespace meshloom::text
