// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "daemon/base/utf8.h"
#include "daemon/text/json_lines.h"

namespace meshloom::text {
namespace {

constexpr int kDeepestScan = 64;
/// Numbers of so many digits, with exponents of two, are no infinity.
constexpr std::size_t kMostDigits = 100;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/// Whether one of eight bytes is anything but a character of ASCII that means itself in a string:
/// zeros are found in each byte by a subtraction that borrows from its highest bit (Mycroft).
bool any_to_look_at(const char* bytes) {
  constexpr std::uint64_t kOnes = 0x0101010101010101, kHighest = 0x8080808080808080;
  std::uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  const auto has = [&](unsigned char byte) {
    const std::uint64_t same = word ^ (kOnes * byte);
    return (same - kOnes) & ~same;
  };
  const std::uint64_t control = (word - kOnes * 0x20) & ~word;
  return ((word | control | has('"') | has('\\')) & kHighest) != 0;
}

/// Reads a line of JSON from its beginning. Each part returns false where it is no JSON, or where
/// that takes more than a quick look to say.
class LineScan {
 public:
  LineScan(std::string_view line, std::string_view field)
      : at_(line.data()), end_(at_ + line.size()), field_(field) {}

  /// The whole line is an object, the last value under the field is a string.
  bool has_text() {
    skip_blanks();
    if (!take('{') || !members(0)) return false;
    skip_blanks();
    return at_ == end_ && has_text_;
  }

 private:
  void skip_blanks() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool take(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  /// Behind its first quote.
  bool string_end() {
    while (true) {
      while (end_ - at_ >= 8 && !any_to_look_at(at_)) at_ += 8;
      if (at_ == end_) return false;
      const auto byte = static_cast<unsigned char>(*at_);
      if (byte == '"') {
        ++at_;
        return true;
      }
      if (byte < 0x20 || !(byte == '\\' ? escape() : characters())) return false;
    }
  }
  /// Half a surrogate pair takes a closer look, so that escapes of both are left to that.
  bool escape() {
    if (end_ - at_ < 2) return false;
    const char kind = at_[1];
    at_ += 2;
    if (kind != 'u') return kind != '\0' && std::strchr("\"\\/bfnrt", kind) != nullptr;
    if (end_ - at_ < 4) return false;
    for (int i = 0; i < 4; ++i)
      if (!is_hex(at_[i])) return false;
    if ((at_[0] == 'd' || at_[0] == 'D') && at_[1] >= '8') return false;
    at_ += 4;
    return true;
  }
  /// One, or those that follow it outside of ASCII, too.
  bool characters() {
    do {
      if (!character()) return false;
    } while (at_ < end_ && static_cast<unsigned char>(*at_) >= 0x80);
    return true;
  }
  bool character() {
    const auto first = static_cast<unsigned char>(*at_);
    const int more = base::utf8_continuation_bytes(first);
    if (more < 0 || end_ - at_ <= more) return false;
    for (int i = 1; i <= more; ++i)
      if (!base::utf8_continues(at_[i])) return false;
    if (more > 0 && !base::utf8_second_byte_fits(first, static_cast<unsigned char>(at_[1])))
      return false;
    at_ += more + 1;
    return true;
  }

  bool digits() {
    const char* const begin = at_;
    while (at_ < end_ && is_digit(*at_)) ++at_;
    return at_ > begin && static_cast<std::size_t>(at_ - begin) <= kMostDigits;
  }
  bool number() {
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (!take('e') && !take('E')) return true;
    if (!take('+')) take('-');
    const char* const begin = at_;
    return digits() && at_ - begin <= 2;
  }
  bool word(std::string_view text) {
    if (!std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(text))
      return false;
    at_ += text.size();
    return true;
  }

  /// Behind its brace, in so many other values.
  bool members(int nested) {
    skip_blanks();
    if (take('}')) return true;
    while (true) {
      skip_blanks();
      if (!take('"')) return false;
      const char* const key = at_;
      if (!string_end()) return false;
      const std::string_view name(key, static_cast<std::size_t>(at_ - key - 1));
      // It may spell the field in another way.
      if (nested == 0 && name.find('\\') != std::string_view::npos) return false;
      skip_blanks();
      if (!take(':')) return false;
      skip_blanks();
      if (nested == 0 && name == field_) has_text_ = at_ < end_ && *at_ == '"';
      if (!value(nested)) return false;
      skip_blanks();
      if (take('}')) return true;
      if (!take(',')) return false;
    }
  }
  bool elements(int nested) {
    skip_blanks();
    if (take(']')) return true;
    while (true) {
      skip_blanks();
      if (!value(nested)) return false;
      skip_blanks();
      if (take(']')) return true;
      if (!take(',')) return false;
    }
  }
  bool value(int nested) {
    if (nested == kDeepestScan || at_ == end_) return false;
    switch (*at_) {
      case '"': ++at_; return string_end();
      case '{': ++at_; return members(nested + 1);
      case '[': ++at_; return elements(nested + 1);
      case 't': return word("true");
      case 'f': return word("false");
      case 'n': return word("null");
      default: return number();
    }
  }

  const char* at_;
  const char* const end_;
  const std::string_view field_;
  bool has_text_ = false;
};

}  // namespace

bool plainly_has_text(std::string_view line, std::string_view field) {
  return LineScan(line, field).has_text();
}

}  // namespace meshloom::text
