// SPDX-License-Identifier: Apache-2.0
// What a character is, of one version of Unicode for all builds: that of the `tokenizers` package.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meshloom::text {

/// Names the version of the tables, for what depends on them.
std::string_view unicode_version();

/// CharClass holds the classes of a character as bits: bits 0 to 4 number its general category.
using CharClass = std::uint16_t;
// --- Flags as the generated table has them; the regular expressions' and Rust's \w differ.
inline constexpr CharClass kSpace = 1 << 5;        ///< \s
inline constexpr CharClass kRegexWord = 1 << 6;    ///< \w of split patterns
inline constexpr CharClass kWord = 1 << 7;         ///< \w elsewhere
inline constexpr CharClass kNumeric = 1 << 8;      ///< splits at digits
inline constexpr CharClass kPunctuation = 1 << 9;  ///< splits at punctuation, as BERT does
inline constexpr CharClass kControl = 1 << 10;     ///< BERT's clean text is without it
inline constexpr CharClass kNonspacing = 1 << 11;  ///< BERT's accents
inline constexpr CharClass kAccent = 1 << 12;      ///< StripAccents
// --- Flags that follow from the category.
inline constexpr CharClass kLetter = 1 << 13;  ///< \p{L}
inline constexpr CharClass kNumber = 1 << 14;  ///< \p{N}

/// CharClasses holds the classes of all code points in two stages; 0.2 MB, made at the first use.
class CharClasses {
 public:
  static const CharClasses& get();

  /// `c` is at most U+10FFFF.
  CharClass operator[](char32_t c) const { return pages_[pages_of_[c >> 8] + (c & 0xFF)]; }

 private:
  CharClasses();

  std::uint32_t pages_of_[0x1100];
  std::vector<CharClass> pages_;
};

/// Returns "Lu", "Nd", ... of a class.
const char* category_name(CharClass c);

/// Returns the code points [first, last] in order that have one of the flags, or whose category's
/// name begins with `category` ("L", "Lu"); empty for a category that there is not.
std::vector<std::pair<char32_t, char32_t>> ranges_of_flag(CharClass flags);
std::vector<std::pair<char32_t, char32_t>> ranges_of_category(std::string_view category);

/// Returns a number that is equal for characters that pre-tokenizing by scripts keeps together; 0
/// for the blank and for characters that are none, which belong to any script.
std::uint8_t script_of(char32_t c);

/// Appends the lower-case form, which is two characters for U+0130.
void append_lowercase(char32_t c, std::string& out);

}  // namespace meshloom::text
