// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/split_scanners.h"

#include "daemon/text/unicode.h"
#include "daemon/text/utf8.h"

namespace meshloom::text {
namespace {

constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr CharClass kSpaceLetterNumber = kSpace | kLetter | kNumber;

/// Finds ends of runs in a text.
class Runs {
 public:
  explicit Runs(const char* end) : end_(end) {}

  const char* end() const { return end_; }
  CharClass class_at(const char* at) const { return at < end_ ? classes_[next_char(at)] : kSpace; }
  /// The end of the run of characters that have one of `flags`.
  const char* end_of(CharClass flags, const char* at) const {
    while (at < end_) {
      const char* next = at;
      if ((classes_[next_char(next)] & flags) == 0) break;
      at = next;
    }
    return at;
  }
  /// The end of the run of characters that are neither white space, letters nor numbers.
  const char* end_of_others(const char* at) const {
    while (at < end_) {
      const char* next = at;
      if ((classes_[next_char(next)] & kSpaceLetterNumber) != 0) break;
      at = next;
    }
    return at;
  }
  const char* end_of_numbers(const char* at, int most) const {
    for (; most > 0 && at < end_; --most) {
      const char* next = at;
      if ((classes_[next_char(next)] & kNumber) == 0) break;
      at = next;
    }
    return at;
  }
  /// `\s+(?!\S)|\s+`: white space up to the last character before something else, which gets that.
  const char* end_of_space(const char* at) const {
    const char* const stop = end_of(kSpace, at);
    if (stop == end_) return stop;
    std::string_view space(at, static_cast<std::size_t>(stop - at));
    pop_char(space);
    return space.empty() ? stop : space.data() + space.size();
  }

 private:
  const CharClasses& classes_ = CharClasses::get();
  const char* end_;
};

/// Length of an English contraction after an apostrophe at `at`, 0 if there is none. Without regard
/// to case, the long s (U+017F) is an s.
std::size_t contraction(const char* at, const char* end, bool any_case) {
  const auto letter = [&](std::ptrdiff_t i) {
    const char c = at + i < end ? at[i] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  };
  const char first = letter(1), second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  if (first == 'l' && second == 'l') return 3;
  return any_case && first == '\xC5' && second == '\xBF' ? 3 : 0;
}

const char* gpt2_end(const Runs& runs, const char* at) {
  if (*at == '\'')
    if (const auto length = contraction(at, runs.end(), false)) return at + length;
  // A blank goes with what follows it, unless that is white space.
  const char* const body = *at == ' ' ? at + 1 : at;
  const CharClass kind = runs.class_at(body);
  if (kind & kLetter) return runs.end_of(kLetter, body);
  if (kind & kNumber) return runs.end_of(kNumber, body);
  if (kind & kSpace) return runs.end_of_space(at);
  return runs.end_of_others(body);
}

const char* llama3_end(const Runs& runs, const char* at, int digits) {
  const auto is_newline = [](char c) { return c == '\r' || c == '\n'; };
  if (*at == '\'')
    if (const auto length = contraction(at, runs.end(), true)) return at + length;
  const CharClass kind = runs.class_at(at);
  if (kind & kLetter) return runs.end_of(kLetter, at);
  if (kind & kNumber) return runs.end_of_numbers(at, digits);
  // Any one character but a newline goes with the letters that follow it.
  const char* after = at;
  next_char(after);
  const CharClass next = runs.class_at(after);
  if (!is_newline(*at) && (next & kLetter)) return runs.end_of(kLetter, after);
  if ((kind & kSpace) == 0 || (*at == ' ' && (next & kSpaceLetterNumber) == 0)) {
    const char* stop = runs.end_of_others((kind & kSpace) ? after : at);
    while (stop < runs.end() && is_newline(*stop)) ++stop;
    return stop;
  }
  // White space up to its last newline; without one, as in GPT-2.
  for (const char* stop = runs.end_of(kSpace, at); stop > at; --stop)
    if (is_newline(stop[-1])) return stop;
  return runs.end_of_space(at);
}

}  // namespace

const char* regular_expression(SplitPattern pattern) {
  return pattern == SplitPattern::kGpt2     ? kGpt2
         : pattern == SplitPattern::kLlama3 ? kLlama3
                                            : kQwen2;
}

std::optional<SplitPattern> known_split_pattern(std::string_view expression) {
  for (const auto pattern : {SplitPattern::kGpt2, SplitPattern::kLlama3, SplitPattern::kQwen2})
    if (expression == regular_expression(pattern)) return pattern;
  return std::nullopt;
}

void scan(SplitPattern pattern, const Piece& text, const PieceSink& sink) {
  const char* at = text.text.data();
  const Runs runs(at + text.text.size());
  bool first = text.first;
  while (at < runs.end()) {
    const char* const stop = pattern == SplitPattern::kGpt2
                                 ? gpt2_end(runs, at)
                                 : llama3_end(runs, at, pattern == SplitPattern::kLlama3 ? 3 : 1);
    sink({{at, static_cast<std::size_t>(stop - at)}, first});
    first = false;
    at = stop;
  }
}

}  // namespace meshloom::text
