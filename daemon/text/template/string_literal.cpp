// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/string_literal.h"

#include <charconv>

#include "daemon/text/utf8.h"

namespace meshloom::text::chat {
namespace {

/// Characters beyond ASCII as escapes. A backslash in front of one takes the escape's own, which
/// is what Jinja makes of it.
std::string ascii_form(std::string_view literal) {
  std::string ascii;
  const char* at = literal.data();
  while (at < literal.data() + literal.size()) {
    const char32_t c = next_char(at);
    const auto code = static_cast<std::uint32_t>(c);
    if (c < 0x80)
      ascii += static_cast<char>(c);
    else
      ascii += c < 0x100     ? fmt::format("\\x{:02x}", code)
               : c < 0x10000 ? fmt::format("\\u{:04x}", code)
                             : fmt::format("\\U{:08x}", code);
  }
  return ascii;
}

class Unescaper {
 public:
  Unescaper(std::string_view text, const SourceText& source, int line)
      : text_(text), source_(source), line_(line) {}

  std::string read() {
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '\\' && at_ < text_.size())
        read_escape();
      else
        out_ += c;
    }
    return std::move(out_);
  }

 private:
  void read_escape() {
    constexpr std::string_view kLetters = "\\'\"abfnrtv", kCharacters = "\\'\"\a\b\f\n\r\t\v";
    const char c = text_[at_];
    if (const std::size_t i = kLetters.find(c); i != std::string_view::npos) {
      ++at_;
      out_ += kCharacters[i];
    } else if (c >= '0' && c <= '7') {
      read_octal();
    } else if (c == 'x' || c == 'u' || c == 'U') {
      ++at_;
      read_hex(c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c == 'N') {
      source_.not_offered(line_, "a character by its name (\\N) in a string");
    } else if (c == '\n') {
      ++at_;
    } else {
      out_ += '\\';
    }
  }
  void read_octal() {
    char32_t c = 0;
    for (int i = 0; i < 3 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i)
      c = c * 8 + static_cast<char32_t>(text_[at_++] - '0');
    append_utf8(c, out_);
  }
  void read_hex(std::size_t digits) {
    std::uint32_t code = 0;
    const std::string_view hex = text_.substr(at_, digits);
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
    if (hex.size() != digits || end != hex.data() + digits || code > 0x10FFFF)
      source_.refuse(line_, "an escape in a string has the digits '{}', expected {} of a character",
                     hex, digits);
    if (code >= 0xD800 && code < 0xE000)
      source_.refuse(line_, "a string has half a surrogate pair (U+{:X})", code);
    at_ += digits;
    append_utf8(code, out_);
  }

  const std::string_view text_;
  const SourceText& source_;
  const int line_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string unescaped(std::string_view literal, const SourceText& source, int line) {
  if (literal.find('\\') == std::string_view::npos) return std::string(literal);
  const std::string ascii = ascii_form(literal);
  return Unescaper(ascii, source, line).read();
}

}  // namespace meshloom::text::chat
