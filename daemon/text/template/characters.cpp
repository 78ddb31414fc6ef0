// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/characters.h"

#include <algorithm>
#include <cstring>

#include "daemon/text/template/case_data.h"
#include "daemon/text/unicode.h"
#include "daemon/text/utf8.h"

namespace meshloom::text::chat {
namespace {

/// The row of a table whose range holds the character, or null.
template <typename Row>
const Row* row_of(std::span<const Row> table, char32_t c) {
  const auto behind = std::upper_bound(table.begin(), table.end(), c,
                                       [](char32_t a, const Row& row) { return a < row.first; });
  if (behind == table.begin()) return nullptr;
  const Row& row = *(behind - 1);
  return c <= row.last && (c - row.first) % row.step == 0 ? &row : nullptr;
}

bool append_expansion(std::span<const case_data::Expansion> table, char32_t c, std::string& out) {
  const auto row =
      std::lower_bound(table.begin(), table.end(), c,
                       [](const case_data::Expansion& a, char32_t b) { return a.character < b; });
  if (row == table.end() || row->character != c) return false;
  for (const std::uint32_t to : row->to)
    if (to != 0) append_utf8(to, out);
  return true;
}

bool has_category(char32_t c, std::string_view names) {
  const char* category = category_name(CharClasses::get()[c]);
  return names.find(std::string_view(category, 2)) != std::string_view::npos;
}

/// Whether the first character from `at` on (or before it) that the case rules do not look past is
/// a cased one.
bool cased_before(std::string_view text, std::size_t at) {
  std::string_view rest = text.substr(0, at);
  while (!rest.empty()) {
    const char32_t c = pop_char(rest);
    if (row_of(case_data::kCaseIgnorable, c) == nullptr) return is_cased(c);
  }
  return false;
}
bool cased_behind(std::string_view text, std::size_t at) {
  const char* next = text.data() + at;
  while (next < text.data() + text.size()) {
    const char32_t c = next_char(next);
    if (row_of(case_data::kCaseIgnorable, c) == nullptr) return is_cased(c);
  }
  return false;
}

constexpr char32_t kSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2;

}  // namespace

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_lower(char32_t c) {
  return c < 0x80 ? c >= 'a' && c <= 'z' : row_of(case_data::kLower, c) != nullptr;
}
bool is_upper(char32_t c) {
  return c < 0x80 ? c >= 'A' && c <= 'Z' : row_of(case_data::kUpper, c) != nullptr;
}
bool is_title(char32_t c) { return c >= 0x80 && row_of(case_data::kTitle, c) != nullptr; }
bool is_decimal(char32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : has_category(c, "Nd"); }
bool is_digit_character(char32_t c) {
  return is_decimal(c) || row_of(case_data::kDigits, c) != nullptr;
}
bool is_numeric(char32_t c) {
  return is_digit_character(c) || row_of(case_data::kNumerics, c) != nullptr;
}
bool is_letter(char32_t c) { return has_category(c, "Lm Lt Lu Ll Lo"); }
bool is_printable(char32_t c) {
  return c < 0x80 ? c >= 0x20 && c < 0x7F : !has_category(c, "Cc Cf Cs Co Cn Zl Zp Zs");
}

void append_upper(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  } else if (const auto* row = row_of(case_data::kToUpper, c)) {
    append_utf8(static_cast<char32_t>(static_cast<std::int32_t>(c) + row->distance), out);
  } else if (!append_expansion(case_data::kToUpperMany, c, out)) {
    append_utf8(c, out);
  }
}

void append_title(char32_t c, std::string& out) {
  if (c < 0x80 || !append_expansion(case_data::kToTitle, c, out)) append_upper(c, out);
}

void append_lower(std::string_view text, std::size_t at, std::string& out) {
  const char* next = text.data() + at;
  const char32_t c = next_char(next);
  if (c == kSigma) {
    const bool is_final =
        cased_before(text, at) && !cased_behind(text, static_cast<std::size_t>(next - text.data()));
    append_utf8(is_final ? kFinalSigma : kSmallSigma, out);
  } else {
    append_lowercase(c, out);
  }
}

std::string lower_case(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    if (const char c = text[at]; static_cast<unsigned char>(c) < 0x80)
      lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    else
      append_lower(text, at, lower);
  }
  return lower;
}

std::string upper_case(std::string_view text) {
  std::string upper;
  upper.reserve(text.size());
  const char* next = text.data();
  while (next < text.data() + text.size()) append_upper(next_char(next), upper);
  return upper;
}

std::size_t skip_spaces(std::string_view text, std::size_t at) {
  const char* next = text.data() + at;
  while (at < text.size() && is_space(next_char(next)))
    at = static_cast<std::size_t>(next - text.data());
  return at;
}

std::string_view strip_spaces_behind(std::string_view text) {
  while (!text.empty()) {
    std::string_view rest = text;
    if (!is_space(pop_char(rest))) break;
    text = rest;
  }
  return text;
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::size_t position_of(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  while (index-- > 0) at += utf8_length(text[at]);
  return at;
}

}  // namespace meshloom::text::chat
