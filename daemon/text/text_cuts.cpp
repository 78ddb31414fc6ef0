// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/text_cuts.h"

#include <algorithm>
#include <string>

#include "daemon/base/utf8.h"
#include "daemon/text/json_part.h"
#include "daemon/text/split_scanners.h"
#include "daemon/text/unicode.h"
#include "daemon/text/utf8.h"

namespace meshloom::text {
namespace {

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

void restrict_by_normalizer(const JsonPart& part, TextCuts& cuts) {
  const std::string type = part.text("type");
  if (type == "Sequence") {
    for (const JsonPart& step : part.elements("normalizers")) restrict_by_normalizer(step, cuts);
    return;
  }
  if (type == "NFC" || type == "NFD") return;
  cuts.after_newline = false;
  if (type == "NFKC" || type == "NFKD" || type == "Lowercase" || type == "StripAccents" ||
      type == "BertNormalizer")
    return;
  cuts = {};
}

bool has_known_pattern(const JsonPart& split) {
  const JsonPart pattern = split.at("pattern");
  if (!pattern.has("Regex") || !known_split_pattern(pattern.text("Regex"))) return false;
  return split.text("behavior") == (split.flag("invert") ? "Removed" : "Isolated");
}

/// `made` are those at which a step has split already.
void restrict_by_pre_tokenizer(const JsonPart& part, TextCuts& cuts, TextCuts& made) {
  const std::string type = part.text("type");
  const bool splits_at_white_space =
      type == "BertPreTokenizer" || type == "Whitespace" || type == "WhitespaceSplit";
  if (type == "Sequence") {
    for (const JsonPart& step : part.elements("pretokenizers"))
      restrict_by_pre_tokenizer(step, cuts, made);
  } else if (type == "ByteLevel") {
    // What begins with a blank gets no other one before it.
    if (part.flag("add_prefix_space")) cuts.after_newline = false;
    if (part.flag("use_regex", true)) made.before_blank = made.after_newline = true;
  } else if (splits_at_white_space || (type == "Split" && has_known_pattern(part))) {
    made.before_blank = made.after_newline = true;
  } else if (type == "Metaspace") {
    cuts.after_newline = false;
    if (!part.flag("split", true)) cuts.before_blank = false;
    made.before_blank = true;
  } else if (type == "CharDelimiterSplit") {
    if (part.text("delimiter") == " ") made.before_blank = true;
    if (part.text("delimiter") == "\n") made.after_newline = true;
  } else if (type != "Digits" && type != "Punctuation") {
    cuts = {};
  }
}

void restrict_by_added_token(const JsonPart& token, bool is_normalized, TextCuts& cuts) {
  const std::string content = token.text("content");
  if (content.empty()) return;
  const CharClasses& classes = CharClasses::get();
  bool has_white = false, has_other = false, is_ascii = true;
  for (const char* at = content.data(); at < content.data() + content.size();) {
    const char32_t c = next_char(at);
    (classes[c] & kSpace ? has_white : has_other) = true;
    is_ascii = is_ascii && c < 0x80;
  }
  const bool left = token.flag("lstrip"), right = token.flag("rstrip");
  const bool looks_around = left || right || token.flag("single_word");
  if (has_white && (has_other || looks_around)) cuts = {};
  // Its normalised form may be anything.
  if (!is_ascii && is_normalized && token.flag("normalized", true)) cuts = {};
  // White space that belongs to it lies on the other side.
  if (right && is_ascii_letter(content.back())) cuts.before_blank = false;
  const char* first = content.data();
  if (left && (classes[next_char(first)] & kLetter)) cuts.after_newline = false;
}

/// The character that begins or ends `text` is one of `flags`; false where it is no UTF-8.
bool begins_with(std::string_view text, CharClass flags) {
  if (text.empty()) return false;
  const std::size_t length = utf8_length(text.front());
  if (length > text.size() || !base::is_utf8(text.substr(0, length))) return false;
  const char* at = text.data();
  return (CharClasses::get()[next_char(at)] & flags) != 0;
}

bool ends_with(std::string_view text, CharClass flags) {
  std::size_t begin = text.size();
  while (begin > 0 && text.size() - begin < 4) {
    const auto byte = static_cast<unsigned char>(text[--begin]);
    if ((byte & 0xC0u) == 0x80u) continue;
    return utf8_length(text[begin]) == text.size() - begin &&
           begins_with(text.substr(begin), flags);
  }
  return false;
}

bool is_cut(std::string_view text, std::size_t at, const TextCuts& cuts) {
  if (cuts.anywhere) return true;
  const char before = text[at - 1];
  if (cuts.before_blank && text[at] == ' ' && is_ascii_letter(before)) return true;
  return cuts.after_newline && before == '\n' &&
         ends_with(text.substr(0, at - 1), kLetter | kPunctuation) &&
         begins_with(text.substr(at), kLetter);
}

}  // namespace

TextCuts text_cuts(const JsonPart& tokenizer) {
  TextCuts cuts{.before_blank = true, .after_newline = true}, made;
  const bool is_normalized = tokenizer.has("normalizer");
  if (is_normalized) restrict_by_normalizer(tokenizer.at("normalizer"), cuts);
  if (tokenizer.has("pre_tokenizer"))
    restrict_by_pre_tokenizer(tokenizer.at("pre_tokenizer"), cuts, made);
  if (tokenizer.has("added_tokens"))
    for (const JsonPart& token : tokenizer.elements("added_tokens"))
      restrict_by_added_token(token, is_normalized, cuts);
  cuts.before_blank = cuts.before_blank && made.before_blank;
  cuts.after_newline = cuts.after_newline && made.after_newline;
  return cuts;
}

std::optional<std::size_t> last_cut(std::string_view text, std::size_t from, const TextCuts& cuts) {
  if (!cuts.any() || text.empty()) return std::nullopt;
  for (std::size_t at = text.size() - 1; at > from; --at)
    if (is_cut(text, at, cuts)) return at;
  return std::nullopt;
}

}  // namespace meshloom::text
