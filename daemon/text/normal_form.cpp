// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/normal_form.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "daemon/base/utf8.h"
#include "daemon/text/hangul.h"
#include "daemon/text/unicode_data.h"
#include "daemon/text/utf8.h"

namespace meshloom::text {
namespace {

/// The tables by character. Below U+00C0 nothing decomposes, combines or composes with what is
/// before it.
class Tables {
 public:
  static const Tables& get() {
    static const Tables tables;
    return tables;
  }

  struct Parts {
    char32_t first, second;
  };

  const Parts* decomposition(char32_t c) const {
    const auto at = parts_.find(c);
    return at == parts_.end() ? nullptr : &at->second;
  }
  int combining_class(char32_t c) const {
    const auto at = classes_.find(c);
    return at == classes_.end() ? 0 : at->second;
  }
  /// 0 if the two do not compose.
  char32_t composition(char32_t first, char32_t second) const {
    const auto at = composites_.find(std::uint64_t{first} << 32 | second);
    return at == composites_.end() ? 0 : at->second;
  }

 private:
  Tables() {
    const std::span steps(unicode_data::kDecompositions, unicode_data::kDecompositions_size);
    const std::span apart(unicode_data::kOnlyApart, unicode_data::kOnlyApart_size);
    for (std::size_t i = 0; i < steps.size(); i += 3) {
      parts_[steps[i]] = {steps[i + 1], steps[i + 2]};
      if (steps[i + 2] != 0 && !std::binary_search(apart.begin(), apart.end(), steps[i]))
        composites_[std::uint64_t{steps[i + 1]} << 32 | steps[i + 2]] = steps[i];
    }
    const std::span runs(unicode_data::kCombining, unicode_data::kCombining_size);
    for (std::size_t i = 0; i < runs.size(); i += 2)
      for (std::uint32_t k = 0; k < runs[i + 1]; ++k)
        classes_[(runs[i] >> 8) + k] = static_cast<std::uint8_t>(runs[i] & 0xFF);
  }

  std::unordered_map<char32_t, Parts> parts_;
  std::unordered_map<char32_t, std::uint8_t> classes_;
  std::unordered_map<std::uint64_t, char32_t> composites_;
};

/// Whole decompositions that are those of compatibility alone. Below U+0080 there is none.
class Compatibility {
 public:
  static const Compatibility& get() {
    static const Compatibility compatibility;
    return compatibility;
  }

  /// Empty if the character has none.
  std::span<const std::uint32_t> decomposition(char32_t c) const {
    const auto at = texts_.find(c);
    return at == texts_.end() ? std::span<const std::uint32_t>() : at->second;
  }

 private:
  Compatibility() {
    const std::span texts(unicode_data::kCompatible, unicode_data::kCompatible_size);
    for (std::size_t i = 0; i < texts.size(); i += 1 + (texts[i] & 0xFF))
      texts_[texts[i] >> 8] = texts.subspan(i + 1, texts[i] & 0xFF);
  }

  std::unordered_map<char32_t, std::span<const std::uint32_t>> texts_;
};

struct Combining {
  char32_t c;
  int combining_class;
};

/// What is done to the characters of a text.
struct Form {
  bool compatible = false;  ///< decomposed by compatibility
  bool composed = false;
};

void append_decomposition(char32_t c, bool compatible, std::vector<Combining>& out) {
  const Tables& tables = Tables::get();
  if (compatible) {
    const auto parts = Compatibility::get().decomposition(c);
    for (const char32_t part : parts) out.push_back({part, tables.combining_class(part)});
    if (!parts.empty()) return;
  }
  if (c - kHangulBase < kSyllables) {
    const char32_t index = c - kHangulBase;
    out.push_back({kLeadBase + index / (kVowels * kTails), 0});
    out.push_back({kVowelBase + index / kTails % kVowels, 0});
    if (index % kTails != 0) out.push_back({kTailBase + index % kTails, 0});
  } else if (const auto* parts = tables.decomposition(c)) {
    append_decomposition(parts->first, compatible, out);
    if (parts->second != 0) append_decomposition(parts->second, compatible, out);
  } else {
    out.push_back({c, tables.combining_class(c)});
  }
}

char32_t composed(char32_t first, char32_t second) {
  if (first - kLeadBase < kLeads && second - kVowelBase < kVowels)
    return kHangulBase + ((first - kLeadBase) * kVowels + second - kVowelBase) * kTails;
  if (first - kHangulBase < kSyllables && (first - kHangulBase) % kTails == 0 &&
      second - kTailBase - 1 < kTails - 1)
    return first + (second - kTailBase);
  return Tables::get().composition(first, second);
}

/// Composes a decomposed run in place: each character with the last starter unless something
/// between them blocks it.
void compose(std::vector<Combining>& run) {
  if (run.empty()) return;
  std::size_t starter = run[0].combining_class == 0 ? 0 : run.size();
  std::size_t end = 1;
  int last_class = run[0].combining_class;
  for (std::size_t i = 1; i < run.size(); ++i) {
    const auto [c, combining_class] = run[i];
    const bool blocked = end > starter + 1 && (last_class == 0 || last_class >= combining_class);
    const char32_t both = starter < end && !blocked ? composed(run[starter].c, c) : 0;
    if (both != 0) {
      run[starter].c = both;
      continue;
    }
    if (combining_class == 0) starter = end;
    last_class = combining_class;
    run[end++] = run[i];
  }
  run.resize(end);
}

/// Text is done by runs that begin with a character below U+00C0 (U+0080 by compatibility), which
/// never changes together with what is before it; a run of such characters alone is copied.
std::string normal_form(std::string_view text, const Form& form) {
  std::string out;
  out.reserve(text.size());
  std::vector<Combining> run;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto is_plain = [first = form.compatible ? 0x80 : 0xC3](char c) {
    return static_cast<unsigned char>(c) < first;
  };
  while (at < end) {
    // The character before one that may combine belongs to its run.
    const char* plain = std::find_if_not(at, end, is_plain);
    if (plain < end && plain > at) {
      do --plain;
      while (plain > at && base::utf8_continues(*plain));
    }
    out.append(at, plain);
    at = plain;
    run.clear();
    while (at < end && (run.empty() || !is_plain(*at)))
      append_decomposition(next_char(at), form.compatible, run);
    for (auto from = run.begin(); from != run.end();) {
      const auto is_starter = [](const Combining& c) { return c.combining_class == 0; };
      const auto to = std::find_if(from, run.end(), is_starter);
      std::stable_sort(from, to, [](const Combining& a, const Combining& b) {
        return a.combining_class < b.combining_class;
      });
      from = std::find_if_not(to, run.end(), is_starter);
    }
    if (form.composed) compose(run);
    for (const Combining& part : run) append_utf8(part.c, out);
  }
  return out;
}

}  // namespace

std::string to_nfd(std::string_view text) { return normal_form(text, {}); }
std::string to_nfc(std::string_view text) { return normal_form(text, {.composed = true}); }
std::string to_nfkd(std::string_view text) { return normal_form(text, {.compatible = true}); }
std::string to_nfkc(std::string_view text) {
  return normal_form(text, {.compatible = true, .composed = true});
}

}  // namespace meshloom::text
