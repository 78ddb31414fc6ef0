// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/pre_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "daemon/base/utf8.h"
#include "daemon/text/regex.h"
#include "daemon/text/split.h"
#include "daemon/text/split_scanners.h"
#include "daemon/text/unicode.h"
#include "daemon/text/utf8.h"

namespace meshloom::text {
namespace {

constexpr const char* kPreTokenizer = "pre_tokenizer";

PreTokenizer splitting(MatchFinder find, SplitBehavior behavior, bool invert = false) {
  return [find = std::move(find), behavior, invert](const Piece& piece, Budget& budget,
                                                    const PieceSink& sink) {
    split_at_matches(piece, find, behavior, invert, budget, sink);
  };
}

/// A finder of single characters with a flag.
MatchFinder characters_with(CharClass flag) {
  return [flag, &classes = CharClasses::get()](std::string_view text, Budget&, const auto& found) {
    const char* at = text.data();
    while (at < text.data() + text.size()) {
      const char* const begin = at;
      if ((classes[next_char(at)] & flag) != 0)
        found(static_cast<std::size_t>(begin - text.data()),
              static_cast<std::size_t>(at - text.data()));
    }
  };
}

SplitBehavior read_behavior(const JsonPart& part) {
  static const std::map<std::string, SplitBehavior> names = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  const auto at = names.find(part.text());
  if (at == names.end())
    part.not_offered(fmt::format("the behavior \"{}\" is not known", part.text()));
  return at->second;
}

PreTokenizer read_split(const JsonPart& part) {
  part.allow_only({"type", "pattern", "behavior", "invert"});
  const JsonPart pattern = part.at("pattern");
  pattern.allow_only({"String", "Regex"});
  const SplitBehavior behavior = read_behavior(part.at("behavior"));
  const bool invert = part.flag("invert");
  if (pattern.has("String")) {
    const std::string what = pattern.short_text("String");
    if (what.empty()) pattern.refuse("got an empty text to split at");
    return splitting(occurrences_of(what), behavior, invert);
  }
  const std::string expression = pattern.short_text("Regex");
  // The matches of the known patterns cover the text, so that what is removed when it is inverted,
  // what lies between matches, is nothing.
  const auto known = known_split_pattern(expression);
  if (known && behavior == (invert ? SplitBehavior::kRemoved : SplitBehavior::kIsolated))
    return
        [known](const Piece& piece, Budget&, const PieceSink& sink) { scan(*known, piece, sink); };
  return splitting(
      [regex = Regex(expression)](std::string_view text, Budget& budget, const auto& found) {
        regex.for_each_match(text, found, budget, kPreTokenizer);
      },
      behavior, invert);
}

void add_step(const JsonPart& part, PreTokenizers& out, PreTokenizer step) {
  part.check_step(out.steps.size(), "pre-tokenizers");
  out.steps.push_back(std::move(step));
}

void read_byte_level(const JsonPart& part, PreTokenizers& out) {
  part.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (part.flag("add_prefix_space"))
    add_step(part, out, [](const Piece& piece, Budget& budget, const PieceSink& sink) {
      if (piece.text.front() == ' ') return sink(piece);
      const Budget::Hold hold(budget, piece.text.size() + 1, kPreTokenizer);
      sink({std::string(" ").append(piece.text), piece.first});
    });
  if (part.flag("use_regex", true))
    add_step(part, out, [](const Piece& piece, Budget&, const PieceSink& sink) {
      scan(SplitPattern::kGpt2, piece, sink);
    });
  out.byte_level = true;
}

PreTokenizer read_metaspace(const JsonPart& part) {
  part.allow_only(
      {"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  const std::string mark = part.short_text("replacement");
  if (mark.empty()) part.at("replacement").refuse("got an empty text");
  std::string scheme = part.optional_text("prepend_scheme").value_or("always");
  if (!part.flag("add_prefix_space", true)) {
    if (part.has("prepend_scheme") && scheme != "never")
      part.refuse(fmt::format("add_prefix_space is false and prepend_scheme \"{}\"", scheme));
    scheme = "never";
  }
  if (scheme != "always" && scheme != "first" && scheme != "never")
    part.not_offered(fmt::format("the prepend_scheme \"{}\" is not known", scheme));
  const bool splits = part.flag("split", true);
  return
      [=, find = occurrences_of(mark)](const Piece& piece, Budget& budget, const PieceSink& sink) {
        const auto blanks =
            static_cast<std::size_t>(std::count(piece.text.begin(), piece.text.end(), ' '));
        const std::size_t bytes = piece.text.size() + (blanks + 1) * mark.size();
        budget.spend(bytes, kPreTokenizer);
        const Budget::Hold hold(budget, bytes, kPreTokenizer);
        std::string text;
        for (const char c : piece.text) c == ' ' ? text += mark : text += c;
        const bool wanted = scheme == "always" || (scheme == "first" && piece.first);
        if (wanted && !text.starts_with(mark)) text.insert(0, mark);
        const Piece marked{text, piece.first};
        if (splits)
          split_at_matches(marked, find, SplitBehavior::kMergedWithNext, false, budget, sink);
        else
          sink(marked);
      };
}

PreTokenizer read_char_delimiter(const JsonPart& part) {
  part.allow_only({"type", "delimiter"});
  const std::string delimiter = part.text("delimiter");
  if (delimiter.empty() || utf8_length(delimiter.front()) != delimiter.size())
    part.at("delimiter")
        .refuse(fmt::format("got \"{}\", expected one character", base::printable_text(delimiter)));
  return splitting(occurrences_of(delimiter), SplitBehavior::kRemoved);
}

/// Pieces of so many characters.
PreTokenizer read_fixed_length(const JsonPart& part) {
  part.allow_only({"type", "length"});
  constexpr std::int64_t kDefault = 5, kMost = std::int64_t{1} << 40;
  const std::int64_t length =
      part.json().contains("length") ? part.at("length").number(kMost) : kDefault;
  if (length == 0) part.at("length").refuse("got 0, expected at least 1 character");
  return [length](const Piece& piece, Budget&, const PieceSink& sink) {
    const char* at = piece.text.data();
    const char* const end = at + piece.text.size();
    while (at < end) {
      const char* const begin = at;
      for (std::int64_t count = 0; count < length && at < end; ++count) at += utf8_length(*at);
      sink({{begin, static_cast<std::size_t>(at - begin)},
            piece.first && begin == piece.text.data()});
    }
  };
}

/// Where the script changes. A character of no script belongs to what is before it; those in front
/// of the first one that has a script are left out, as the package does.
void split_at_scripts(const Piece& piece, Budget&, const PieceSink& sink) {
  const char* at = piece.text.data();
  const char* const end = at + piece.text.size();
  const char* begin = end;
  std::uint8_t last = 0;
  const auto give = [&](const char* until) {
    if (begin < until)
      sink({{begin, static_cast<std::size_t>(until - begin)},
            piece.first && begin == piece.text.data()});
  };
  while (at < end) {
    const char* const here = at;
    const std::uint8_t script = script_of(next_char(at));
    if (script == 0 || script == last) continue;
    give(here);
    begin = here;
    last = script;
  }
  give(end);
}

/// Pre-tokenizers without fields.
PreTokenizer plain_pre_tokenizer(const std::string& type) {
  // At white space and around every punctuation mark.
  if (type == "BertPreTokenizer")
    return [spaces = splitting(characters_with(kSpace), SplitBehavior::kRemoved),
            marks = splitting(characters_with(kPunctuation), SplitBehavior::kIsolated)](
               const Piece& piece, Budget& budget, const PieceSink& sink) {
      spaces(piece, budget, [&](const Piece& word) { marks(word, budget, sink); });
    };
  if (type == "WhitespaceSplit") return splitting(characters_with(kSpace), SplitBehavior::kRemoved);
  if (type == "UnicodeScripts") return split_at_scripts;
  if (type != "Whitespace") return nullptr;
  // Words, and what is neither word nor white space, in runs.
  return [&classes = CharClasses::get()](const Piece& piece, Budget&, const PieceSink& sink) {
    const auto kind = [&](char32_t c) {
      return (classes[c] & kWord) ? kWord : (classes[c] & kSpace);
    };
    const char* at = piece.text.data();
    const char* const end = at + piece.text.size();
    while (at < end) {
      const char* const begin = at;
      const auto run = kind(next_char(at));
      for (const char* next = at; at < end && kind(next_char(next)) == run; at = next) {
      }
      if (run != kSpace)
        sink({{begin, static_cast<std::size_t>(at - begin)},
              piece.first && begin == piece.text.data()});
    }
  };
}

void add_pre_tokenizer(const JsonPart& part, PreTokenizers& out) {
  const std::string type = part.text("type");
  if (out.byte_level)
    part.not_offered(fmt::format("the pre-tokenizer \"{}\" after ByteLevel is not known", type));
  if (type == "Sequence") {
    part.allow_only({"type", "pretokenizers"});
    for (const JsonPart& step : part.elements("pretokenizers")) add_pre_tokenizer(step, out);
  } else if (type == "ByteLevel") {
    read_byte_level(part, out);
  } else if (type == "Split") {
    add_step(part, out, read_split(part));
  } else if (type == "Metaspace") {
    add_step(part, out, read_metaspace(part));
  } else if (type == "Digits") {
    part.allow_only({"type", "individual_digits"});
    const auto behavior =
        part.flag("individual_digits") ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    add_step(part, out, splitting(characters_with(kNumeric), behavior));
  } else if (type == "Punctuation") {
    part.allow_only({"type", "behavior"});
    const auto behavior =
        part.has("behavior") ? read_behavior(part.at("behavior")) : SplitBehavior::kIsolated;
    add_step(part, out, splitting(characters_with(kPunctuation), behavior));
  } else if (type == "CharDelimiterSplit") {
    add_step(part, out, read_char_delimiter(part));
  } else if (type == "FixedLength") {
    add_step(part, out, read_fixed_length(part));
  } else if (auto plain = plain_pre_tokenizer(type)) {
    part.allow_only({"type"});
    add_step(part, out, std::move(plain));
  } else {
    part.not_offered(fmt::format("the pre-tokenizer \"{}\" is not known", type));
  }
}

}  // namespace

void PreTokenizers::split(const Piece& text, Budget& budget, const PieceSink& sink) const {
  if (text.text.empty()) return;
  if (steps.empty()) {
    budget.spend(1 + text.text.size(), kPreTokenizer);
    return sink(text);
  }
  // sinks[i] takes what step i makes.
  std::vector<PieceSink> sinks(steps.size() - 1);
  const auto run = [&](std::size_t step, const Piece& piece) {
    budget.spend(1 + piece.text.size(), kPreTokenizer);
    steps[step](piece, budget, step < sinks.size() ? sinks[step] : sink);
  };
  for (std::size_t i = 0; i < sinks.size(); ++i)
    sinks[i] = [&run, i](const Piece& piece) {
      if (!piece.text.empty()) run(i + 1, piece);
    };
  run(0, text);
}

PreTokenizers read_pre_tokenizers(const JsonPart& part) {
  PreTokenizers out;
  add_pre_tokenizer(part, out);
  return out;
}

}  // namespace meshloom::text
