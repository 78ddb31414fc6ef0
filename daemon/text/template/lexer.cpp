// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "daemon/text/template/characters.h"
#include "daemon/text/template/string_literal.h"
#include "daemon/text/utf8.h"

namespace meshloom::text::chat {
namespace {

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/// Digits with single underscores between them from `at`; where they end, or `at` itself.
template <typename IsDigit>
std::size_t end_of_digits(std::string_view text, std::size_t at, IsDigit&& digit) {
  const std::size_t from = at;
  while (at < text.size()) {
    if (digit(text[at]))
      ++at;
    else if (at > from && text[at] == '_' && at + 1 < text.size() && digit(text[at + 1]))
      at += 2;
    else
      break;
  }
  return at;
}

class Lexer {
 public:
  explicit Lexer(const SourceText& source) : source_(source), text_(source.text()) {}

  std::vector<Token> read() {
    while (at_ < text_.size()) read_data();
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  Token& add(TokenKind kind) {
    Token& token = tokens_.emplace_back();
    token.kind = kind;
    token.line = line_;
    return token;
  }
  void move_to(std::size_t at) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    line_starts_ = at > 0 && text_[at - 1] == '\n';
    at_ = at;
  }
  bool has(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  std::size_t behind_spaces(std::size_t at) const { return skip_spaces(text_, at); }
  std::size_t behind_newline(std::size_t at) const {
    return at < text_.size() && text_[at] == '\n' ? at + 1 : at;
  }

  /// Text up to the next mark, and what the mark begins.
  void read_data() {
    std::size_t mark = at_;
    while ((mark = text_.find('{', mark)) != std::string_view::npos) {
      const char next = mark + 1 < text_.size() ? text_[mark + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') break;
      ++mark;
    }
    if (mark == std::string_view::npos) {
      add_data(text_.substr(at_));
      move_to(text_.size());
      return;
    }
    const char kind = text_[mark + 1];
    const char sign = mark + 2 < text_.size() ? text_[mark + 2] : '\0';
    add_data(trimmed(text_.substr(at_, mark - at_), sign, kind != '{'));
    move_to(mark);
    const std::size_t body = mark + (sign == '-' || sign == '+' ? 3 : 2);
    const std::size_t raw = kind == '%' ? behind_raw(body) : 0;
    if (raw > 0)
      read_raw(raw);
    else if (kind == '#')
      read_comment(body);
    else
      read_tag(body, kind == '{');
  }

  /// What is left of text in front of a mark with the sign; `is_tag`: one that lstrip_blocks is
  /// for.
  std::string_view trimmed(std::string_view data, char sign, bool is_tag) const {
    if (sign == '-') return strip_spaces_behind(data);
    if (sign == '+' || !is_tag) return data;
    const std::size_t line = data.rfind('\n') + 1;  // 0 where there is none
    if (line == 0 && !line_starts_) return data;
    return skip_spaces(data, line) == data.size() ? data.substr(0, line) : data;
  }
  void add_data(std::string_view data) {
    if (!data.empty()) add(TokenKind::kData).text = data;
  }

  /// Where the tag {% raw %} whose name begins at `at` ends; 0 where it is another one.
  std::size_t behind_raw(std::size_t at) const {
    at = behind_spaces(at);
    if (!text_.substr(at).starts_with("raw")) return 0;
    at = behind_spaces(at + 3);
    if (text_.substr(at).starts_with("-%}")) return behind_spaces(at + 3);
    return text_.substr(at).starts_with("%}") ? at + 2 : 0;
  }
  void read_raw(std::size_t body) {
    const int line = line_;
    move_to(body);
    for (std::size_t mark = text_.find("{%", at_); mark != std::string_view::npos;
         mark = text_.find("{%", mark + 1)) {
      const char sign = mark + 2 < text_.size() ? text_[mark + 2] : '\0';
      std::size_t end = behind_spaces(mark + (sign == '-' || sign == '+' ? 3 : 2));
      if (!text_.substr(end).starts_with("endraw")) continue;
      end = behind_tag_end(behind_spaces(end + 6));
      if (end == 0) continue;
      add_data(trimmed(text_.substr(at_, mark - at_), sign, true));
      move_to(end);
      return;
    }
    // Jinja misses the end of what is there alone.
    if (at_ < text_.size()) source_.refuse(line, "{{% raw %}} has no {{% endraw %}}");
  }
  /// Where the end of a tag at `at` ends, with what it trims; 0 where there is none.
  std::size_t behind_tag_end(std::size_t at) const {
    const std::string_view rest = text_.substr(at);
    if (rest.starts_with("+%}")) return at + 3;
    if (rest.starts_with("-%}")) return behind_spaces(at + 3);
    return rest.starts_with("%}") ? behind_newline(at + 2) : 0;
  }

  void read_comment(std::size_t body) {
    const std::size_t end = text_.find("#}", body);
    if (end == std::string_view::npos) {
      if (body < text_.size()) source_.refuse(line_, "the comment {{# has no end #}}");
      return move_to(body);
    }
    const char sign = end > body ? text_[end - 1] : '\0';
    move_to(sign == '-' ? behind_spaces(end + 2) : sign == '+' ? end + 2 : behind_newline(end + 2));
  }

  void read_tag(std::size_t body, bool is_output) {
    add(is_output ? TokenKind::kOutputBegin : TokenKind::kTagBegin);
    const int line = line_;
    move_to(body);
    std::string brackets;  // those that are open, as they close
    while (at_ < text_.size()) {
      if (brackets.empty()) {
        const std::size_t end = is_output ? behind_output_end() : behind_tag_end(at_);
        if (end > 0) {
          add(is_output ? TokenKind::kOutputEnd : TokenKind::kTagEnd);
          move_to(end);
          return;
        }
      }
      const std::size_t spaces = behind_spaces(at_);
      if (spaces > at_)
        move_to(spaces);
      else
        read_token(brackets);
    }
    source_.refuse(line, "{} has no end", is_output ? "{{" : "{%");
  }
  std::size_t behind_output_end() const {
    if (has("-}}")) return behind_spaces(at_ + 3);
    return has("}}") ? at_ + 2 : 0;
  }

  void read_token(std::string& brackets) {
    const char c = text_[at_];
    if (is_digit(c))
      read_number();
    else if (is_name_start(c))
      read_name();
    else if (c == '\'' || c == '"')
      read_string(c);
    else
      read_operator(brackets);
  }

  void read_name() {
    std::size_t end = at_;
    while (end < text_.size() && (is_name_start(text_[end]) || is_digit(text_[end]))) ++end;
    add(TokenKind::kName).text = text_.substr(at_, end - at_);
    move_to(end);
  }

  void read_number() {
    const std::size_t end = end_of_float();
    if (end == 0) return read_integer();
    std::string digits(text_.substr(at_, end - at_));
    std::erase(digits, '_');
    Token& token = add(TokenKind::kFloat);
    const auto [rest, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), token.real);
    // What is too large is infinite in Python, and what is too small nothing.
    if (error == std::errc::result_out_of_range) token.real = std::strtod(digits.c_str(), nullptr);
    move_to(end);
  }
  /// Where the float here ends; 0 where it is an integer.
  std::size_t end_of_float() const {
    if (at_ > 0 && text_[at_ - 1] == '.') return 0;
    std::size_t at = end_of_digits(text_, at_, is_digit);
    bool is_float = false;
    if (at + 1 < text_.size() && text_[at] == '.' && is_digit(text_[at + 1])) {
      at = end_of_digits(text_, at + 1, is_digit);
      is_float = true;
    }
    if (at < text_.size() && (text_[at] == 'e' || text_[at] == 'E')) {
      std::size_t exponent = at + 1;
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
      if (exponent < text_.size() && is_digit(text_[exponent]))
        return end_of_digits(text_, exponent, is_digit);
    }
    return is_float ? at : 0;
  }
  void read_integer() {
    int base = 10;
    std::size_t from = at_, end = 0;
    if (text_[at_] == '0' && at_ + 1 < text_.size()) {
      const char kind = static_cast<char>(text_[at_ + 1] | 0x20);
      base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
      if (base != 10) {
        from += 2;
        if (from < text_.size() && text_[from] == '_') ++from;
      }
    }
    const auto digit = [&](char c) {
      if (base == 16) return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
      // A number that begins with 0 is 0.
      return is_digit(c) && c - '0' < (base == 10 && text_[at_] == '0' ? 1 : base);
    };
    end = end_of_digits(text_, from, digit);
    if (end == from) source_.refuse(line_, "a number has no digits");
    std::string digits(text_.substr(from, end - from));
    std::erase(digits, '_');
    Token& token = add(TokenKind::kInteger);
    const auto [rest, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), token.integer, base);
    if (error != std::errc())
      source_.too_large(line_, "the integer {:.40} does not fit 64 bits", digits);
    move_to(end);
  }

  void read_string(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) source_.refuse(line_, "a string has no end {}", quote);
    Token& token = add(TokenKind::kString);
    token.text = unescaped(text_.substr(at_ + 1, end - at_ - 1), source_, line_);
    move_to(end + 1);
  }

  void read_operator(std::string& brackets) {
    for (const std::string_view spelling : kOperators) {
      if (!has(spelling)) continue;
      const char c = spelling[0];
      if (c == '(' || c == '[' || c == '{') {
        brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
      } else if (c == ')' || c == ']' || c == '}') {
        if (brackets.empty() || brackets.back() != c) source_.refuse(line_, "unexpected '{}'", c);
        brackets.pop_back();
      }
      add(TokenKind::kOperator).text = spelling;
      return move_to(at_ + spelling.size());
    }
    const std::string_view c = text_.substr(at_, utf8_length(text_[at_]));
    if (c.size() > 1)
      source_.not_offered(line_, "a name with the character '{}', expected ASCII letters", c);
    source_.refuse(line_, "unexpected character '{}'", c);
  }

  const SourceText& source_;
  const std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> read_tokens(const SourceText& source) { return Lexer(source).read(); }

}  // namespace meshloom::text::chat
