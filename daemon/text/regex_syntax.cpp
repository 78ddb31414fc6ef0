// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "daemon/base/utf8.h"
#include "daemon/text/regex.h"
#include "daemon/text/unicode.h"
#include "daemon/text/utf8.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

/// A class of letters takes 10 KB of what is compiled, of which there may be 64 KB.
constexpr std::size_t kMostPatternBytes = std::size_t{1} << 20;

constexpr std::size_t kMostShown = 80;

using Ranges = std::vector<std::pair<char32_t, char32_t>>;

Ranges complement(const Ranges& ranges) {
  Ranges rest;
  char32_t next = 0;
  for (const auto& [first, last] : ranges) {
    if (first > next) rest.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= 0x10FFFF) rest.emplace_back(next, 0x10FFFF);
  return rest;
}

/// Ranges as they stand inside brackets. Surrogates are no characters for PCRE2.
std::string written_out(const Ranges& ranges) {
  std::string out;
  const auto add = [&](char32_t first, char32_t last) {
    if (first <= last)
      out += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<std::uint32_t>(first),
                         static_cast<std::uint32_t>(last));
  };
  for (const auto& [first, last] : ranges) {
    if (last < 0xD800 || first > 0xDFFF) {
      add(first, last);
    } else {
      if (first < 0xD800) add(first, 0xD7FF);
      if (last > 0xDFFF) add(0xE000, last);
    }
  }
  return out;
}

class Translator {
 public:
  explicit Translator(std::string_view expression) : all_(expression), rest_(expression) {}

  std::string run() {
    while (!rest_.empty()) {
      check_size();
      if (take("\\")) {
        out_ += escape(false);
      } else if (take("[")) {
        brackets();
      } else if (take("(?")) {
        group();
      } else if (take("{")) {
        brace();
      } else if (rest_.starts_with("}+")) {
        refuse("}+");
      } else if (take("(*")) {
        refuse("(*");
      } else {
        out_ += rest_.front();
        rest_.remove_prefix(1);
      }
    }
    return out_;
  }

 private:
  [[noreturn]] void refuse(std::string_view part) const {
    const std::string all = base::printable_text(all_, kMostShown, false);
    const std::string shown = base::printable_text(part, kMostShown, false);
    throw Unimplemented(
        fmt::format("the regular expression \"{}\" has \"{}\", which is not known", all, shown),
        "NOT_OFFERED", {{"expression", all}, {"part", shown}});
  }

  /// Classes are written out, so that it may grow a thousandfold.
  void check_size() const {
    if (out_.size() <= kMostPatternBytes) return;
    const std::string all = base::printable_text(all_, kMostShown, false);
    throw ResourceExhausted(fmt::format("the regular expression \"{}\" is too large", all),
                            "TOKENIZER_LIMIT", {{"expression", all}});
  }

  /// The first characters of what is left.
  std::string_view front(int characters) const {
    std::size_t end = 0;
    for (; characters > 0 && end < rest_.size(); --characters) end += utf8_length(rest_[end]);
    return rest_.substr(0, end);
  }

  bool take(std::string_view part) {
    if (!rest_.starts_with(part)) return false;
    rest_.remove_prefix(part.size());
    return true;
  }

  /// After "{". Quantifiers that Oniguruma and every PCRE2 read alike stay as they are, as does a
  /// brace that all take for itself: {,3} and {1, 3} are text for PCRE2 before 10.43, and a{3}?
  /// is (?:a{3})? for Oniguruma.
  void brace() {
    const auto behind_digits = [this](std::size_t from) {
      return std::min(rest_.find_first_not_of("0123456789", from), rest_.size());
    };
    const std::size_t first = behind_digits(0);
    const bool is_range = first < rest_.size() && rest_[first] == ',';
    const std::size_t end = is_range ? behind_digits(first + 1) : first;
    const bool is_quantifier = first > 0 && end < rest_.size() && rest_[end] == '}';
    const std::string_view words =
        rest_.substr(std::min(rest_.find_first_not_of(" \t"), rest_.size()));
    const bool may_be_one =
        !words.empty() && ((words[0] >= '0' && words[0] <= '9') || words[0] == ',');
    if (is_quantifier ? !is_range && rest_.substr(end).starts_with("}?") : may_be_one)
      refuse(fmt::format("{{{}", front(8)));
    out_ += '{';
  }

  void group() {
    for (const std::string_view kind : {":", "i:", "=", "!", "<=", "<!", ">"})
      if (take(kind)) {
        out_ += "(?";
        out_ += kind;
        return;
      }
    refuse(fmt::format("(?{}", front(2)));
  }

  /// After "[".
  void brackets() {
    out_ += '[';
    if (take("^")) out_ += '^';
    if (take("]")) out_ += "\\]";
    while (!take("]")) {
      check_size();
      if (rest_.empty()) refuse("[ without ]");
      if (take("\\")) {
        out_ += escape(true);
      } else if (rest_.front() == '[' || rest_.starts_with("&&")) {
        refuse(front(2));
      } else {
        out_ += rest_.front();
        rest_.remove_prefix(1);
      }
    }
    out_ += ']';
  }

  /// After a backslash; the text that stands for it, in brackets or not.
  std::string escape(bool in_brackets) {
    if (rest_.empty()) refuse("\\ at the end");
    const char letter = rest_.front();
    const std::string_view character = front(1);
    rest_.remove_prefix(1);
    if (auto ranges = character_class(letter)) {
      const std::string inside = written_out(*ranges);
      return in_brackets ? inside : fmt::format("[{}]", inside);
    }
    switch (letter) {
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'a':
      case 'e': return {'\\', letter};
      case 'v': return "\\x{b}";
      case 'A':
      case 'z':
        if (!in_brackets) return {'\\', letter};
        break;
      case 'u':
        if (rest_.size() >= 4 && is_hex(rest_.substr(0, 4))) return code_point(4);
        break;
      case 'x':
        if (take("{")) {
          const std::size_t length = rest_.find('}');
          if (length == std::string_view::npos || !is_hex(rest_.substr(0, length))) break;
          const std::string c = code_point(length);
          rest_.remove_prefix(1);
          return c;
        }
        if (rest_.size() >= 2 && is_hex(rest_.substr(0, 2))) return code_point(2);
        break;
      default:
        if (static_cast<unsigned char>(letter) < 0x80 && !is_word(letter)) return {'\\', letter};
    }
    refuse(fmt::format("\\{}", character));
  }

  /// The characters of \s, \p{L} and the like.
  std::optional<Ranges> character_class(char letter) {
    switch (letter) {
      case 's': return ranges_of_flag(kSpace);
      case 'S': return complement(ranges_of_flag(kSpace));
      case 'd': return ranges_of_category("Nd");
      case 'D': return complement(ranges_of_category("Nd"));
      case 'w': return ranges_of_flag(kRegexWord);
      case 'W': return complement(ranges_of_flag(kRegexWord));
      case 'p':
      case 'P': break;
      default: return std::nullopt;
    }
    const std::size_t end = rest_.find('}');
    if (!take("{") || end == std::string_view::npos) refuse("\\p without {..}");
    bool negated = letter == 'P';
    if (take("^")) negated = !negated;
    const std::string_view name = rest_.substr(0, rest_.find('}'));
    const Ranges ranges = name.size() <= 2 ? ranges_of_category(name) : Ranges();
    if (ranges.empty()) refuse(fmt::format("\\p{{{}}}", name));
    rest_.remove_prefix(name.size() + 1);
    return negated ? complement(ranges) : ranges;
  }

  static bool is_hex(std::string_view text) {
    return !text.empty() && text.size() <= 6 &&
           text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
  }
  static bool is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  }

  std::string code_point(std::size_t digits) {
    const std::string out = fmt::format("\\x{{{}}}", rest_.substr(0, digits));
    rest_.remove_prefix(digits);
    return out;
  }

  std::string_view all_, rest_;
  std::string out_;
};

}  // namespace

std::string to_pcre2(std::string_view expression) { return Translator(expression).run(); }

}  // namespace meshloom::text
