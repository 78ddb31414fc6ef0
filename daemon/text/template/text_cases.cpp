// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/characters.h"
#include "daemon/text/template/python_text.h"
#include "daemon/text/template/work.h"
#include "daemon/text/utf8.h"

namespace meshloom::text::chat {
namespace {

/// Calls body(character, its place) for each character, and pays for all of them.
template <typename Body>
void for_each_character(Work& work, std::string_view text, Body&& body) {
  work.spend(1 + text.size());
  const char* next = text.data();
  while (next < text.data() + text.size()) {
    const auto at = static_cast<std::size_t>(next - text.data());
    body(next_char(next), at);
  }
}

/// White space and the brackets and dashes behind which the filter title begins a word.
bool separates_words(char32_t c) {
  return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
}

}  // namespace

std::string title_case(Work& work, std::string_view text) {
  std::string out;
  bool in_word = false;
  for_each_character(work, text, [&](char32_t c, std::size_t at) {
    if (in_word)
      append_lower(text, at, out);
    else
      append_title(c, out);
    in_word = is_cased(c);
  });
  return out;
}

std::string title_filter(Work& work, std::string_view text) {
  std::string out;
  std::size_t begin = 0;
  // Words and what is between them in turns: each begins with an upper-case character.
  while (begin < text.size()) {
    const char* next = text.data() + begin;
    const bool separates = separates_words(next_char(next));
    const auto second = static_cast<std::size_t>(next - text.data());
    std::size_t end = second;
    while (end < text.size()) {
      const char* at = text.data() + end;
      if (separates_words(next_char(at)) != separates) break;
      end = static_cast<std::size_t>(at - text.data());
    }
    work.spend(1 + end - begin);
    out += upper_case(text.substr(begin, second - begin));
    out += lower_case(text.substr(second, end - second));
    begin = end;
  }
  return out;
}

std::string capitalized(Work& work, std::string_view text) {
  std::string out;
  for_each_character(work, text, [&](char32_t c, std::size_t at) {
    if (at == 0)
      append_title(c, out);
    else
      append_lower(text, at, out);
  });
  return out;
}

std::string swapped_case(Work& work, std::string_view text) {
  std::string out;
  for_each_character(work, text, [&](char32_t c, std::size_t at) {
    if (is_upper(c))
      append_lower(text, at, out);
    else if (is_lower(c))
      append_upper(c, out);
    else
      append_utf8(c, out);
  });
  return out;
}

}  // namespace meshloom::text::chat
