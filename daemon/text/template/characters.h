// SPDX-License-Identifier: Apache-2.0
// What Python takes a character for, where that is not in unicode.h: white space, case, digits.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace meshloom::text::chat {

/// Computes str.isspace(), which is also \s of its regular expressions.
bool is_space(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
inline bool is_cased(char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }
bool is_decimal(char32_t c);
bool is_digit_character(char32_t c);
bool is_numeric(char32_t c);
bool is_letter(char32_t c);
/// Tells whether repr() shows it as it is.
bool is_printable(char32_t c);

/// Appends the upper-case or title-case form, which may be up to three characters.
void append_upper(char32_t c, std::string& out);
void append_title(char32_t c, std::string& out);
/// Computes str.lower(): a sigma at the end of a word has a form of its own.
std::string lower_case(std::string_view text);
std::string upper_case(std::string_view text);
/// Appends the lower-case form of the character that begins at byte `at` of `text`.
void append_lower(std::string_view text, std::size_t at, std::string& out);

// --- Of text in UTF-8; positions are bytes.

/// Returns the first position from `at` that is no white space.
std::size_t skip_spaces(std::string_view text, std::size_t at);
/// Returns the text without white space at its end.
std::string_view strip_spaces_behind(std::string_view text);
std::size_t count_characters(std::string_view text);
/// Returns the position of the character number `index`, which is at most as many as there are.
std::size_t position_of(std::string_view text, std::size_t index);

}  // namespace meshloom::text::chat
