// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/normalizer.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <string_view>

#include "daemon/base/base64.h"
#include "daemon/base/field_error.h"
#include "daemon/text/character_map.h"
#include "daemon/text/grapheme.h"
#include "daemon/text/json_part.h"
#include "daemon/text/normal_form.h"
#include "daemon/text/regex.h"
#include "daemon/text/unicode.h"
#include "daemon/text/utf8.h"

namespace meshloom::text {
namespace {

/// Rewrites a text character by character: body(character, out).
template <typename Body>
void rewrite(NormalText& normal, Body&& body) {
  const std::string& text = normal.text;
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  const char* at = text.data();
  const char* const end = at + text.size();
  if (at < end) body(next_char(at), out);
  if (out.empty()) normal.first = false;
  while (at < end) body(next_char(at), out);
  normal.text = std::move(out);
}

void lowercase(NormalText& text, Budget&) { rewrite(text, append_lowercase); }

constexpr const char* kNormalizer = "normalizer";

/// Removes the characters with a flag.
void remove(NormalText& text, CharClass flag) {
  const CharClasses& classes = CharClasses::get();
  rewrite(text, [&](char32_t c, std::string& out) {
    if ((classes[c] & flag) == 0) append_utf8(c, out);
  });
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) ||
         (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

/// BertNormalizer's parts.
struct BertNormalizerOptions {
  bool clean_text;
  bool handle_chinese_chars;
  bool strip_accents;
  bool lowercase;
};

void clean(NormalText& text, const BertNormalizerOptions& options) {
  const CharClasses& classes = CharClasses::get();
  rewrite(text, [&](char32_t c, std::string& out) {
    const CharClass kind = classes[c];
    if (options.clean_text && (kind & kControl)) return;
    if (options.clean_text && (kind & kSpace)) c = ' ';
    const bool stands_alone = options.handle_chinese_chars && is_chinese(c);
    if (stands_alone) out += ' ';
    append_utf8(c, out);
    if (stands_alone) out += ' ';
  });
}

void strip_white_space(NormalText& normal, bool left, bool right) {
  const CharClasses& classes = CharClasses::get();
  std::string_view rest = normal.text;
  while (right && !rest.empty()) {
    std::string_view before = rest;
    if ((classes[pop_char(before)] & kSpace) == 0) break;
    rest = before;
  }
  while (left && !rest.empty()) {
    const char* at = rest.data();
    if ((classes[next_char(at)] & kSpace) == 0) break;
    rest.remove_prefix(static_cast<std::size_t>(at - rest.data()));
    normal.first = false;
  }
  normal.text = std::string(rest);
}

Normalizer read_replace(const JsonPart& part) {
  part.allow_only({"type", "pattern", "content"});
  const JsonPart pattern = part.at("pattern");
  pattern.allow_only({"String", "Regex"});
  const std::string content = part.short_text("content");
  if (pattern.has("String")) {
    const std::string what = pattern.short_text("String");
    if (what.empty()) pattern.refuse("got an empty text to be replaced");
    return [what, content](NormalText& normal, Budget& budget) {
      if (content.empty() && normal.text.starts_with(what)) normal.first = false;
      replace_all(normal.text, what, content, budget, kNormalizer);
    };
  }
  return [regex = Regex(pattern.short_text("Regex")), content](NormalText& normal, Budget& budget) {
    const std::string text = std::move(normal.text);
    const Budget::Hold hold(budget, text.size(), kNormalizer);
    normal.text.clear();
    std::size_t from = 0;
    regex.for_each_match(
        text,
        [&](std::size_t begin, std::size_t end) {
          if (content.empty() && begin == 0 && end > 0) normal.first = false;
          budget.check_bytes(normal.text.size() + content.size(), kNormalizer);
          normal.text.append(text, from, begin - from).append(content);
          from = end;
        },
        budget, kNormalizer);
    normal.text.append(text, from);
  };
}

Normalizer read_bert(const JsonPart& part) {
  part.allow_only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  BertNormalizerOptions options;
  options.clean_text = part.flag("clean_text");
  options.handle_chinese_chars = part.flag("handle_chinese_chars");
  options.lowercase = part.flag("lowercase");
  options.strip_accents = part.flag("strip_accents", options.lowercase);
  return [options](NormalText& text, Budget& budget) {
    if (options.clean_text || options.handle_chinese_chars) clean(text, options);
    if (options.strip_accents) {
      text.text = to_nfd(text.text);
      remove(text, kNonspacing);
    }
    if (options.lowercase) lowercase(text, budget);
  };
}

/// By the rules of the `tokenizers` package, which are not sentencepiece's: grapheme clusters of
/// few bytes are replaced whole, by what the shortest text of the map that they begin with stands
/// for; the characters of others each by theirs.
void apply_map(const CharacterMap& map, std::string& text, Budget& budget) {
  constexpr std::size_t kShort = 5;
  std::string out;
  const auto replace = [&](std::string_view part) {
    const CharacterMap::Match match = map.shortest(part, budget);
    budget.check_bytes(out.size() + match.normal.size(), kNormalizer);
    if (match.length > 0) out += match.normal;
    return match.length > 0;
  };
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view cluster = rest.substr(0, grapheme_length(rest));
    rest.remove_prefix(cluster.size());
    if (cluster.size() <= kShort && replace(cluster)) continue;
    while (!cluster.empty()) {
      const std::string_view character = cluster.substr(0, utf8_length(cluster.front()));
      if (!replace(character)) out += character;
      cluster.remove_prefix(character.size());
    }
  }
  // Normal forms come from the file as they are, and what follows relies on whole characters.
  std::string storage;
  text = valid_utf8(out, storage);
}

Normalizer read_precompiled(const JsonPart& part) {
  part.allow_only({"type", "precompiled_charsmap"});
  const JsonPart text = part.at("precompiled_charsmap");
  const auto bytes = base::decode_base64(text.text());
  if (!bytes || bytes->empty()) text.refuse("got no map of characters in base64");
  const auto map =
      base::with_field(text.path(), [&] { return std::make_shared<const CharacterMap>(*bytes); });
  return [map](NormalText& normal, Budget& budget) { apply_map(*map, normal.text, budget); };
}

/// One that is no sequence.
Normalizer read_normalizer_step(const JsonPart& part, const std::string& type) {
  if (type == "BertNormalizer") return read_bert(part);
  if (type == "Precompiled") return read_precompiled(part);
  if (type == "Replace") return read_replace(part);
  if (type == "Prepend") {
    part.allow_only({"type", "prepend"});
    return [prefix = part.short_text("prepend")](NormalText& text, Budget&) {
      text.text.insert(0, prefix);
    };
  }
  if (type == "Strip") {
    part.allow_only({"type", "strip_left", "strip_right"});
    const bool left = part.flag("strip_left"), right = part.flag("strip_right");
    return [=](NormalText& text, Budget&) { strip_white_space(text, left, right); };
  }
  const std::map<std::string, Normalizer> plain = {
      {"NFC", [](NormalText& text, Budget&) { text.text = to_nfc(text.text); }},
      {"NFD", [](NormalText& text, Budget&) { text.text = to_nfd(text.text); }},
      {"NFKC", [](NormalText& text, Budget&) { text.text = to_nfkc(text.text); }},
      {"NFKD", [](NormalText& text, Budget&) { text.text = to_nfkd(text.text); }},
      {"Lowercase", lowercase},
      {"StripAccents", [](NormalText& text, Budget&) { remove(text, kAccent); }}};
  const auto at = plain.find(type);
  if (at == plain.end()) part.not_offered(fmt::format("the normalizer \"{}\" is not known", type));
  part.allow_only({"type"});
  return at->second;
}

}  // namespace

Normalizer read_normalizer(const JsonPart& part) {
  std::vector<Normalizer> steps;
  add_steps(part, "normalizers", read_normalizer_step, steps);
  return [steps](NormalText& text, Budget& budget) {
    for (const Normalizer& step : steps) {
      if (text.text.empty()) return;
      budget.spend(1 + 2 * text.text.size(), kNormalizer);
      step(text, budget);
      budget.check_bytes(text.text.size(), kNormalizer);
    }
  };
}

}  // namespace meshloom::text
