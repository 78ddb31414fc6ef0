// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/grapheme.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "daemon/text/hangul.h"
#include "daemon/text/unicode_data.h"
#include "daemon/text/utf8.h"

namespace meshloom::text {
namespace {

/// In the order of scripts/text/make_unicode_data.py. Syllables of Hangul and flags go by their
/// numbers.
enum class Kind : std::uint8_t {
  kOther,
  kControl,
  kExtend,       ///< the joiner is one
  kExtendAlone,  ///< extends, but keeps consonants around it apart
  kLinker,       ///< extends, and joins consonants around it
  kSpacingMark,
  kPrepend,
  kPictographic,
  kConsonant,
  kL,
  kV,
  kT
};

constexpr char32_t kJoiner = 0x200D;

struct Character {
  char32_t c;
  Kind kind;

  bool extends() const {
    return kind == Kind::kExtend || kind == Kind::kExtendAlone || kind == Kind::kLinker;
  }
  bool is_flag() const { return c >= 0x1F1E6 && c <= 0x1F1FF; }
  bool is_syllable() const { return c - kHangulBase < kSyllables; }
  bool is_open_syllable() const { return is_syllable() && (c - kHangulBase) % kTails == 0; }
};

Character next_character(const char*& at) {
  const char32_t c = next_char(at);
  const std::span runs(unicode_data::kGraphemes, unicode_data::kGraphemes_size);
  const auto behind = std::partition_point(runs.begin(), runs.end(),
                                           [&](std::uint32_t run) { return run >> 8 <= c; });
  return {c, static_cast<Kind>(*(behind - 1) & 0xFF)};
}

/// Rules GB6 to GB8.
bool goes_on_syllable(const Character& before, const Character& after) {
  if (before.kind == Kind::kL)
    return after.kind == Kind::kL || after.kind == Kind::kV || after.is_syllable();
  if (before.kind == Kind::kV || before.is_open_syllable())
    return after.kind == Kind::kV || after.kind == Kind::kT;
  return (before.kind == Kind::kT || before.is_syllable()) && after.kind == Kind::kT;
}

/// What the rules look back at beyond the last character.
class Cluster {
 public:
  explicit Cluster(const Character& first) : last_(first) { look_at(first); }

  /// Whether the next character belongs to the cluster.
  bool takes(const Character& next) const {
    if (last_.c == '\r' && next.c == '\n') return true;
    if (last_.kind == Kind::kControl || next.kind == Kind::kControl) return false;
    if (next.extends() || next.kind == Kind::kSpacingMark || last_.kind == Kind::kPrepend)
      return true;
    if (consonant_ == kLinked && next.kind == Kind::kConsonant) return true;
    if (pictograph_ == kLinked && next.kind == Kind::kPictographic) return true;
    if (odd_flags_ && next.is_flag()) return true;
    return goes_on_syllable(last_, next);
  }
  void add(const Character& next) {
    last_ = next;
    look_at(next);
  }

 private:
  /// Of two characters that something between them may join: the first was not seen, was seen, and
  /// was seen with what joins the second to it.
  enum Link { kNone, kSeen, kLinked };

  void look_at(const Character& next) {
    odd_flags_ = next.is_flag() && !odd_flags_;
    if (next.kind == Kind::kConsonant)
      consonant_ = kSeen;
    else if (next.kind == Kind::kLinker)
      consonant_ = consonant_ == kNone ? kNone : kLinked;
    else if (next.kind != Kind::kExtend)
      consonant_ = kNone;
    if (next.kind == Kind::kPictographic)
      pictograph_ = kSeen;
    else if (next.extends() && pictograph_ == kSeen)
      pictograph_ = next.c == kJoiner ? kLinked : kSeen;
    else
      pictograph_ = kNone;
  }

  Character last_;
  Link consonant_ = kNone, pictograph_ = kNone;
  bool odd_flags_ = false;
};

}  // namespace

std::size_t grapheme_length(std::string_view text) {
  const auto is_ascii = [&](std::size_t at) { return static_cast<unsigned char>(text[at]) < 0x80; };
  if (is_ascii(0) && (text.size() == 1 || is_ascii(1))) return text.starts_with("\r\n") ? 2 : 1;
  const char* at = text.data();
  const char* const end = at + text.size();
  Cluster cluster(next_character(at));
  while (at < end) {
    const char* behind = at;
    const Character next = next_character(behind);
    if (!cluster.takes(next)) break;
    cluster.add(next);
    at = behind;
  }
  return static_cast<std::size_t>(at - text.data());
}

}  // namespace meshloom::text
