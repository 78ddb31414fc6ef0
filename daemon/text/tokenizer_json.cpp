// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "daemon/base/utf8.h"
#include "daemon/text/json_part.h"
#include "daemon/text/pipeline_tokenizer.h"

namespace meshloom::text {
namespace {

constexpr std::size_t kMostShown = 80;
constexpr std::int64_t kMostCharacters = std::int64_t{1} << 40;
/// The largest that are published have half a million merges, 28,000 added tokens, and a few around
/// a text.
constexpr std::size_t kMostMerges = std::size_t{1} << 22;
constexpr std::size_t kMostAddedTokens = std::size_t{1} << 18;
constexpr std::size_t kMostAround = 64;

/// "a b" or ["a", "b"].
std::pair<std::string, std::string> read_merge(const JsonPart& part) {
  if (part.json().is_array()) {
    if (part.json().size() != 2) part.refuse("expected two tokens");
    return {JsonPart(part.json()[0], part.path()).text(),
            JsonPart(part.json()[1], part.path()).text()};
  }
  const std::string text = part.text();
  const std::size_t blank = text.find(' ');
  if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos)
    part.refuse(fmt::format("got \"{}\", expected two tokens with a blank between them",
                            base::printable_text(text, kMostShown, false)));
  return {text.substr(0, blank), text.substr(blank + 1)};
}

Bpe read_bpe(const JsonPart& part, bool byte_level, Budget& budget) {
  part.allow_only({"type", "dropout", "unk_token", "continuing_subword_prefix",
                   "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges", "vocab",
                   "merges"});
  if (part.has("dropout") && part.at("dropout").json() != 0)
    part.at("dropout").not_offered("merges that are dropped at random are not known");
  BpeOptions options;
  const auto text = [&](const char* key) { return part.has(key) ? part.short_text(key) : ""; };
  options.unknown = text("unk_token");
  options.continuing_prefix = text("continuing_subword_prefix");
  options.end_of_word_suffix = text("end_of_word_suffix");
  options.fuse_unknown = part.flag("fuse_unk", false);
  options.byte_fallback = part.flag("byte_fallback", false);
  options.ignore_merges = part.flag("ignore_merges", false);
  options.byte_level = byte_level;
  std::vector<std::pair<std::string, std::string>> merges;
  for (const JsonPart& merge : part.elements("merges", kMostMerges)) {
    budget.spend(1, "model");
    merges.push_back(read_merge(merge));
  }
  return {Vocabulary(part.at("vocab"), budget), merges, options, budget};
}

Unigram read_unigram(const JsonPart& part, Budget& budget) {
  part.allow_only({"type", "unk_id", "vocab", "byte_fallback"});
  std::vector<std::pair<std::string, double>> tokens;
  const JsonPart vocab = part.at("vocab");
  VocabularyLimits limits(vocab, vocab.json().size());
  for (const JsonPart& pair : part.elements("vocab")) {
    const auto& json = pair.json();
    if (!json.is_array() || json.size() != 2 || !json[0].is_string() || !json[1].is_number())
      pair.refuse("expected a token and its log-probability");
    tokens.emplace_back(json[0].get<std::string>(), json[1].get<double>());
    limits.add(tokens.back().first.size());
    budget.spend(8 + tokens.back().first.size() / 8, "model");
  }
  std::optional<TokenId> unknown;
  if (part.has("unk_id")) unknown = static_cast<TokenId>(part.at("unk_id").number(kMostTokens - 1));
  return {tokens, unknown, part.flag("byte_fallback", false), budget};
}

TokenModel read_model(const JsonPart& part, bool byte_level, Budget& budget) {
  // Files of old have no type where the model is BPE.
  const std::string type = part.optional_text("type").value_or("BPE");
  if (type != "BPE" && byte_level)
    part.not_offered(fmt::format("the model \"{}\" behind ByteLevel is not known", type));
  if (type == "BPE") return read_bpe(part, byte_level, budget);
  if (type == "WordPiece") {
    part.allow_only(
        {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
    WordPieceOptions options;
    options.unknown = part.short_text("unk_token");
    options.continuing_prefix = part.short_text("continuing_subword_prefix");
    options.longest_word = part.at("max_input_chars_per_word").number(kMostCharacters);
    return WordPiece(Vocabulary(part.at("vocab"), budget), options, budget);
  }
  if (type == "Unigram") return read_unigram(part, budget);
  if (type != "WordLevel") part.not_offered(fmt::format("the model \"{}\" is not known", type));
  part.allow_only({"type", "vocab", "unk_token"});
  return WordLevel(Vocabulary(part.at("vocab"), budget), part.short_text("unk_token"));
}

void check_around(const JsonPart& part, const Template& around) {
  if (around.before.size() + around.after.size() > kMostAround)
    part.too_large(fmt::format("puts more than {} tokens around a text", kMostAround));
}

Template read_template_processing(const JsonPart& part) {
  part.allow_only({"type", "single", "pair", "special_tokens"});
  Template result;
  bool has_sequence = false;
  for (const JsonPart& piece : part.elements("single")) {
    piece.allow_only({"SpecialToken", "Sequence"});
    if (piece.has("Sequence")) {
      if (has_sequence) piece.not_offered("a second Sequence in a template is not known");
      has_sequence = true;
      continue;
    }
    const std::string name = piece.at("SpecialToken").text("id");
    auto& tokens = has_sequence ? result.after : result.before;
    for (const JsonPart& id : part.at("special_tokens").at(name).elements("ids", kMostAround))
      tokens.push_back(static_cast<TokenId>(id.number(kMostTokens - 1)));
    check_around(part, result);
  }
  if (!has_sequence) part.at("single").refuse("has no Sequence");
  return result;
}

/// The id of a pair ["[CLS]", 101].
TokenId id_of_pair(const JsonPart& part, std::string_view key) {
  const auto elements = part.elements(key);
  if (elements.size() != 2) part.at(key).refuse("expected a token and its id");
  return static_cast<TokenId>(elements[1].number(kMostTokens - 1));
}

/// The "post_processor" of a tokenizer.json, as far as it concerns single texts. Throws
/// Unimplemented naming a kind that is not known.
Template read_template(const JsonPart& part) {
  const std::string type = part.text("type");
  if (type == "TemplateProcessing") return read_template_processing(part);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    part.allow_only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
    return {{id_of_pair(part, "cls")}, {id_of_pair(part, "sep")}};
  }
  if (type == "ByteLevel") {
    // It changes offsets in the text alone.
    part.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    return {};
  }
  if (type != "Sequence")
    part.not_offered(fmt::format("the post-processor \"{}\" is not known", type));
  part.allow_only({"type", "processors"});
  Template all;
  for (const JsonPart& step : part.elements("processors", kMostSteps)) {
    const Template outer = read_template(step);
    all.before.insert(all.before.begin(), outer.before.begin(), outer.before.end());
    all.after.insert(all.after.end(), outer.after.begin(), outer.after.end());
    check_around(part, all);
  }
  return all;
}

AddedToken read_added_token(const JsonPart& part) {
  part.allow_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token;
  token.id = static_cast<TokenId>(part.at("id").number(kMostTokens - 1));
  token.content = part.short_text("content");
  token.single_word = part.flag("single_word");
  token.lstrip = part.flag("lstrip");
  token.rstrip = part.flag("rstrip");
  token.normalized = part.flag("normalized");
  token.special = part.flag("special");
  return token;
}

/// Those of the vocabulary's tokens among `special` that are not added tokens already.
void add_special_tokens(const std::vector<std::string>& special, PipelineTokenizer::Parts& parts) {
  for (const std::string& text : special) {
    const auto is_it = [&](const AddedToken& token) { return token.content == text; };
    const auto id = vocabulary_of(parts.model).find(text);
    if (!id || std::any_of(parts.added_tokens.begin(), parts.added_tokens.end(), is_it)) continue;
    parts.added_tokens.push_back(
        {.content = text, .id = *id, .normalized = false, .special = true});
    // It might lie across any of them.
    const auto is_plain = [](char c) { return c > ' ' && c <= '~'; };
    if (!std::all_of(text.begin(), text.end(), is_plain)) parts.cuts = {};
  }
}

}  // namespace

PipelineTokenizer read_tokenizer(const nlohmann::json& json, const std::string& path,
                                 const std::vector<std::string>& special, Budget& budget) {
  const JsonPart root(json, path);
  root.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer",
                   "pre_tokenizer", "post_processor", "decoder", "model"});
  if (root.text("version") != "1.0")
    root.not_offered(
        fmt::format("version \"{}\" is not known, expected \"1.0\"", root.text("version")));
  PreTokenizers pre_tokenizers;
  if (root.has("pre_tokenizer")) pre_tokenizers = read_pre_tokenizers(root.at("pre_tokenizer"));
  PipelineTokenizer::Parts parts{read_model(root.at("model"), pre_tokenizers.byte_level, budget)};
  parts.pre_tokenizers = std::move(pre_tokenizers);
  if (root.has("added_tokens"))
    for (const JsonPart& part : root.elements("added_tokens", kMostAddedTokens))
      parts.added_tokens.push_back(read_added_token(part));
  if (root.has("normalizer")) parts.normalizer = read_normalizer(root.at("normalizer"));
  if (root.has("post_processor")) parts.around = read_template(root.at("post_processor"));
  if (root.has("decoder")) parts.decoder = read_decoder(root.at("decoder"));
  parts.cuts = text_cuts(root);
  add_special_tokens(special, parts);
  return {std::move(parts), budget};
}

PipelineTokenizer read_tokenizer(const nlohmann::json& json, const std::string& path) {
  Budget budget = Budget::of_text(json.dump().size());
  return read_tokenizer(json, path, {}, budget);
}

PipelineTokenizer read_tokenizer_json(std::string_view text, const std::string& path,
                                      const StopCheck& stop) {
  Budget budget = Budget::of_text(text.size(), stop);
  return read_tokenizer(parse_json(text, path, stop), path, {}, budget);
}

}  // namespace meshloom::text
