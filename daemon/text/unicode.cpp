// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/unicode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <span>

#include "daemon/text/unicode_data.h"
#include "daemon/text/utf8.h"

namespace meshloom::text {
namespace {

constexpr char32_t kCodePoints = 0x110000;
constexpr const char* kCategories[] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                       "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                       "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cn", "Co", "Cs"};

/// Calls body(first, end, class) for the runs of characters of one class, in order.
template <typename Body>
void for_each_run(Body&& body) {
  const std::span runs(unicode_data::kRuns, unicode_data::kRuns_size);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const char32_t end = i + 1 < runs.size() ? runs[i + 1] >> 8 : kCodePoints;
    const CharClass kind = unicode_data::kKinds[runs[i] & 0xFF];
    const char major = category_name(kind)[0];
    const int flag = major == 'L' ? kLetter : major == 'N' ? kNumber : 0;
    body(runs[i] >> 8, end, static_cast<CharClass>(kind | flag));
  }
}

template <typename Condition>
std::vector<std::pair<char32_t, char32_t>> ranges_where(Condition&& condition) {
  std::vector<std::pair<char32_t, char32_t>> ranges;
  for_each_run([&](char32_t first, char32_t end, CharClass kind) {
    if (!condition(kind)) return;
    if (!ranges.empty() && ranges.back().second + 1 == first)
      ranges.back().second = end - 1;
    else
      ranges.emplace_back(first, end - 1);
  });
  return ranges;
}

}  // namespace

std::string_view unicode_version() { return unicode_data::kVersion; }

const CharClasses& CharClasses::get() {
  static const CharClasses classes;
  return classes;
}

CharClasses::CharClasses() {
  std::vector<CharClass> all(kCodePoints);
  for_each_run([&](char32_t first, char32_t end, CharClass kind) {
    std::fill(all.begin() + first, all.begin() + end, kind);
  });
  std::map<std::vector<CharClass>, std::uint32_t> known;
  for (std::size_t page = 0; page < std::size(pages_of_); ++page) {
    const std::vector<CharClass> content(all.data() + page * 256, all.data() + page * 256 + 256);
    const auto [at, is_new] = known.emplace(content, static_cast<std::uint32_t>(pages_.size()));
    if (is_new) pages_.insert(pages_.end(), content.begin(), content.end());
    pages_of_[page] = at->second;
  }
}

const char* category_name(CharClass c) { return kCategories[c & 0x1F]; }

std::vector<std::pair<char32_t, char32_t>> ranges_of_flag(CharClass flags) {
  return ranges_where([&](CharClass kind) { return (kind & flags) != 0; });
}

std::vector<std::pair<char32_t, char32_t>> ranges_of_category(std::string_view category) {
  return ranges_where([&](CharClass kind) {
    return !category.empty() && std::string_view(category_name(kind)).starts_with(category);
  });
}

std::uint8_t script_of(char32_t c) {
  const std::span runs(unicode_data::kScripts, unicode_data::kScripts_size);
  const auto behind = std::partition_point(runs.begin(), runs.end(),
                                           [&](std::uint32_t run) { return run >> 8 <= c; });
  return static_cast<std::uint8_t>(*(behind - 1) & 0xFF);
}

void append_lowercase(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    return;
  }
  if (c == 0x130) {
    out += "i\xCC\x87";
    return;
  }
  using Range = std::array<std::int32_t, 4>;  // first, last, step, distance
  static_assert(sizeof(Range) == 4 * sizeof(std::int32_t));
  const std::span ranges(reinterpret_cast<const Range*>(unicode_data::kLowercase),
                         unicode_data::kLowercase_size / 4);
  const auto value = static_cast<std::int32_t>(c);
  const auto at = std::partition_point(ranges.begin(), ranges.end(),
                                       [&](const Range& range) { return range[1] < value; });
  const bool inside = at != ranges.end() && value >= (*at)[0] && (value - (*at)[0]) % (*at)[2] == 0;
  append_utf8(inside ? static_cast<char32_t>(value + (*at)[3]) : c, out);
}

}  // namespace meshloom::text
