// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/decoder.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "daemon/text/bpe.h"
#include "daemon/text/regex.h"
#include "daemon/text/utf8.h"

namespace meshloom::text {
namespace {

constexpr const char* kDecoder = "decoder";

void clean_up(std::string& text, Budget& budget) {
  static constexpr std::array<std::pair<const char*, const char*>, 11> kReplacements = {
      {{" .", "."},
       {" ?", "?"},
       {" !", "!"},
       {" ,", ","},
       {" ' ", "'"},
       {" n't", "n't"},
       {" 'm", "'m"},
       {" do not", " don't"},
       {" 's", "'s"},
       {" 've", "'ve"},
       {" 're", "'re"}}};
  for (const auto& [what, with] : kReplacements) replace_all(text, what, with, budget, kDecoder);
}

std::optional<char> fallback_byte(const std::string& text) {
  unsigned value = 0;
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, value, 16);
  if (error != std::errc() || end != text.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

/// Runs of tokens of bytes become text; if a run is no UTF-8, each of its bytes becomes U+FFFD.
void decode_byte_fallback(std::vector<std::string>& texts, Budget&) {
  std::vector<std::string> out;
  std::string bytes;
  const auto flush = [&] {
    std::string storage;
    const std::size_t count = bytes.size();
    if (valid_utf8(bytes, storage).data() == bytes.data()) {
      if (count > 0) out.push_back(bytes);
    } else {
      out.insert(out.end(), count, "\xEF\xBF\xBD");
    }
    bytes.clear();
  };
  for (std::string& text : texts) {
    if (const auto byte = fallback_byte(text)) {
      bytes += *byte;
    } else {
      flush();
      out.push_back(std::move(text));
    }
  }
  flush();
  texts = std::move(out);
}

Decoder read_replace(const JsonPart& part) {
  part.allow_only({"type", "pattern", "content"});
  const JsonPart pattern = part.at("pattern");
  pattern.allow_only({"String"});
  const std::string what = pattern.short_text("String"), with = part.short_text("content");
  if (what.empty()) pattern.refuse("got an empty text to be replaced");
  return [=](std::vector<std::string>& texts, Budget& budget) {
    std::uint64_t bytes = 0;
    for (std::string& text : texts) {
      replace_all(text, what, with, budget, kDecoder);
      budget.check_bytes(bytes += text.size(), kDecoder);
    }
  };
}

Decoder read_strip(const JsonPart& part) {
  part.allow_only({"type", "content", "start", "stop"});
  const std::string content = part.short_text("content");
  if (content.empty()) part.at("content").refuse("got an empty text to be stripped");
  constexpr std::int64_t kMost = 1 << 20;
  const auto start = part.at("start").number(kMost), stop = part.at("stop").number(kMost);
  return [=](std::vector<std::string>& texts, Budget&) {
    for (std::string& text : texts) {
      std::string_view rest = text;
      for (std::int64_t i = 0; i < start && rest.starts_with(content); ++i)
        rest.remove_prefix(content.size());
      for (std::int64_t i = 0; i < stop && rest.ends_with(content); ++i)
        rest.remove_suffix(content.size());
      if (rest.size() < text.size()) text = std::string(rest);
    }
  };
}

Decoder read_metaspace(const JsonPart& part) {
  part.allow_only(
      {"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  const std::string mark = part.short_text("replacement");
  if (mark.empty()) part.at("replacement").refuse("got an empty text");
  const bool has_prefix = part.optional_text("prepend_scheme").value_or("always") != "never" &&
                          part.flag("add_prefix_space", true);
  return [=](std::vector<std::string>& texts, Budget& budget) {
    for (std::size_t i = 0; i < texts.size(); ++i) {
      // All marks of the first token go, as the package has it.
      replace_all(texts[i], mark, i == 0 && has_prefix ? "" : " ", budget, kDecoder);
    }
  };
}

Decoder read_bpe(const JsonPart& part) {
  part.allow_only({"type", "suffix"});
  return [suffix = part.short_text("suffix")](std::vector<std::string>& texts, Budget& budget) {
    if (suffix.empty()) return;
    for (std::size_t i = 0; i < texts.size(); ++i)
      replace_all(texts[i], suffix, i + 1 < texts.size() ? " " : "", budget, kDecoder);
  };
}

/// Joins words and the parts of words that begin with `prefix`; `cleanup` takes out the blanks
/// before punctuation and in English contractions.
Decoder word_piece_decoder(const std::string& prefix, bool cleanup) {
  return [=](std::vector<std::string>& texts, Budget& budget) {
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (i > 0 && texts[i].starts_with(prefix))
        texts[i].erase(0, prefix.size());
      else if (i > 0)
        texts[i] = ' ' + texts[i];
      if (cleanup) clean_up(texts[i], budget);
    }
  };
}

/// Characters of GPT-2's alphabet as the bytes that they stand for.
void decode_byte_level(std::vector<std::string>& texts, Budget&) {
  std::string bytes;
  for (const std::string& text : texts) {
    const std::size_t before = bytes.size();
    const char* at = text.data();
    while (at < text.data() + text.size()) {
      if (const auto byte = byte_level_byte(next_char(at))) {
        bytes += static_cast<char>(*byte);
        continue;
      }
      // A token that is not written in the alphabet stands for itself.
      bytes.resize(before);
      bytes += text;
      break;
    }
  }
  std::string storage;
  texts = {std::string(valid_utf8(bytes, storage))};
}

/// One that is no sequence.
Decoder read_decoder_step(const JsonPart& part, const std::string& type) {
  if (type == "Replace") return read_replace(part);
  if (type == "Strip") return read_strip(part);
  if (type == "Metaspace") return read_metaspace(part);
  if (type == "BPEDecoder") return read_bpe(part);
  if (type == "WordPiece") {
    part.allow_only({"type", "prefix", "cleanup"});
    return word_piece_decoder(part.short_text("prefix"), part.flag("cleanup"));
  }
  if (type == "ByteLevel") {
    part.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    return decode_byte_level;
  }
  if (type == "ByteFallback") {
    part.allow_only({"type"});
    return decode_byte_fallback;
  }
  if (type == "Fuse") {
    part.allow_only({"type"});
    return [](std::vector<std::string>& texts, Budget&) {
      std::string all;
      for (const std::string& text : texts) all += text;
      texts = {std::move(all)};
    };
  }
  part.not_offered(fmt::format("the decoder \"{}\" is not known", type));
}

}  // namespace

Decoder read_decoder(const JsonPart& part) {
  std::vector<Decoder> steps;
  add_steps(part, "decoders", read_decoder_step, steps);
  return [steps](std::vector<std::string>& texts, Budget& budget) {
    for (const Decoder& step : steps) {
      std::uint64_t bytes = 0;
      for (const std::string& text : texts) bytes += text.size();
      budget.spend(1 + 2 * (texts.size() + bytes), kDecoder);
      budget.check_bytes(bytes, kDecoder);
      step(texts, budget);
    }
  };
}

}  // namespace meshloom::text
