// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/slow_tokenizer_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "daemon/base/utf8.h"
#include "daemon/text/special_tokens.h"
#include "daemon/text/split_scanners.h"
#include "daemon/text/vocabulary.h"

namespace meshloom::text {
namespace {

using Json = nlohmann::json;

/// Tokens, or merges of tokens.
constexpr std::size_t kMostLines = std::size_t{1} << 22;

/// Refuses lines that are no UTF-8: replaced, they could become equal.
std::vector<std::string> lines_of(std::string_view text, const char* name, const JsonPart& config) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (lines.size() == kMostLines)
      config.too_large(fmt::format("{} beside it has more than {} lines", name, kMostLines));
    lines.emplace_back(text.substr(0, end));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    if (!base::is_utf8(lines.back()))
      config.refuse(
          fmt::format("{} beside it has a line that is no UTF-8: {}", name, lines.size()));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// The tokens under added_tokens_decoder as a tokenizer.json has them, in the order of their ids;
/// an empty array without it.
Json decoded_added_tokens(const JsonPart& config) {
  Json tokens = Json::array();
  if (!config.has("added_tokens_decoder")) return tokens;
  const JsonPart all = config.at("added_tokens_decoder");
  if (!all.json().is_object()) all.refuse("expected an object of ids and their tokens");
  for (const auto& [id, token] : all.json().items()) {
    const bool is_number =
        !id.empty() && id.size() < 9 && id.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number || !token.is_object())
      all.refuse(fmt::format("got \"{}\", expected a token's id and an object", id));
    // Json::value() throws an error of its own for a content that is no text.
    JsonPart(token, fmt::format("{}.{}", all.path(), id)).text("content");
    tokens.push_back(token);
    tokens.back()["id"] = std::stoll(id);
  }
  // Those that the vocabulary has not are numbered in this order; the keys are in that of texts.
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const Json& a, const Json& b) { return a["id"] < b["id"]; });
  return tokens;
}

Json added_token(const std::string& content, const Json& id, bool special) {
  return {{"id", id},        {"content", content},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", !special}, {"special", special}};
}

/// Those of added_tokens_decoder; the special tokens of the folder and of its class too, as far as
/// the vocabulary has them.
Json added_tokens(const JsonPart& config, const std::string& class_name, const Json& vocab) {
  Json tokens = decoded_added_tokens(config);
  for (const char* name : kSpecialTokenNames) {
    const auto content = special_token(config, class_name, name);
    if (!content) continue;
    const auto at = vocab.find(*content);
    const bool is_there = std::any_of(tokens.begin(), tokens.end(), [&](const Json& token) {
      return token.value("content", "") == *content;
    });
    if (at != vocab.end() && !is_there) tokens.push_back(added_token(*content, *at, true));
  }
  return tokens;
}

/// What add_bos_token and add_eos_token put around a text; null where neither is set.
Json template_of(const JsonPart& config, const std::string& class_name, const Json& vocab) {
  Json single = Json::array(), ids = Json::object();
  const auto add = [&](const char* flag, const char* name) {
    const auto token = special_token(config, class_name, name);
    if (!config.flag(flag, false) || !token) return;
    const auto at = vocab.find(*token);
    if (at == vocab.end())
      config.not_offered(fmt::format("{} with a {} that vocab.json has not, \"{}\", is not known",
                                     flag, name, base::printable_text(*token, 80, false)));
    single.push_back({{"SpecialToken", {{"id", *token}}}});
    ids[*token] = {{"ids", Json::array({*at})}};
  };
  add("add_bos_token", "bos_token");
  single.push_back({{"Sequence", Json::object()}});
  add("add_eos_token", "eos_token");
  if (single.size() == 1) return nullptr;
  return {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", ids}};
}

}  // namespace

Json with_added_tokens_file(Json config, const JsonPart& added) {
  if (!added.json().is_object()) added.refuse("expected an object of tokens and their ids");
  if (config.contains("added_tokens_decoder")) return config;
  std::set<std::string> special;
  const JsonPart named(config, added.path());
  for (const char* name : kSpecialTokenNames)
    if (const auto token = special_token(named, name)) special.insert(*token);
  if (named.has("additional_special_tokens"))
    for (const JsonPart& token : named.elements("additional_special_tokens"))
      special.insert(token.json().is_object() ? token.text("content") : token.text());
  Json decoder = Json::object();
  for (const auto& [content, id] : added.json().items()) {
    const JsonPart part(id, fmt::format("{}.{}", added.path(), content));
    const std::int64_t number = part.number(kMostTokens - 1);
    decoder[std::to_string(number)] = added_token(content, number, special.contains(content));
  }
  config["added_tokens_decoder"] = decoder;
  return config;
}

Json json_of_bpe_files(const Json& vocab, std::string_view merges, const JsonPart& config) {
  const std::string name = named_class(config).value_or("GPT2Tokenizer");
  const bool is_qwen = name == "Qwen2Tokenizer";
  if (!is_qwen && name != "GPT2Tokenizer")
    config.not_offered(
        fmt::format("the tokenizer_class \"{}\" with vocab.json is not known", name));
  if (!vocab.is_object()) config.refuse("vocab.json is no object of tokens and their ids");
  Json pairs = Json::array();
  for (const std::string& line : lines_of(merges, "merges.txt", config))
    if (!line.empty() && !line.starts_with("#version")) pairs.push_back(line);

  const Json level = {{"type", "ByteLevel"},
                      {"add_prefix_space", config.flag("add_prefix_space", false)},
                      {"trim_offsets", true},
                      {"use_regex", !is_qwen}};
  Json pre_tokenizer = level;
  if (is_qwen) {
    const Json split = {{"type", "Split"},
                        {"pattern", {{"Regex", regular_expression(SplitPattern::kQwen2)}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", {split, level}}};
  }
  return {{"version", "1.0"},
          {"added_tokens", added_tokens(config, name, vocab)},
          {"normalizer", is_qwen ? Json{{"type", "NFC"}} : Json()},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", template_of(config, name, vocab)},
          {"decoder", level},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", pairs}}}};
}

Json json_of_word_piece_file(std::string_view text, const JsonPart& config) {
  const std::string name = named_class(config).value_or("BertTokenizer");
  if (name != "BertTokenizer" && name != "DistilBertTokenizer")
    config.not_offered(fmt::format("the tokenizer_class \"{}\" with vocab.txt is not known", name));
  Json vocab = Json::object();
  std::int64_t line = 0;
  for (const std::string& token : lines_of(text, "vocab.txt", config)) vocab[token] = line++;
  const auto token_or = [&](const char* key, const char* otherwise) {
    return special_token(config, key).value_or(otherwise);
  };
  const std::string unknown = token_or("unk_token", "[UNK]");
  const std::string cls = token_or("cls_token", "[CLS]"), sep = token_or("sep_token", "[SEP]");
  for (const std::string& token : {unknown, cls, sep})
    if (!vocab.contains(token)) config.refuse(fmt::format("vocab.txt has no token \"{}\"", token));

  const bool lowercase = config.flag("do_lower_case", true);
  return {{"version", "1.0"},
          {"added_tokens", added_tokens(config, name, vocab)},
          {"normalizer",
           {{"type", "BertNormalizer"},
            {"clean_text", true},
            {"handle_chinese_chars", config.flag("tokenize_chinese_chars", true)},
            {"strip_accents", config.flag("strip_accents", lowercase)},
            {"lowercase", lowercase}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor",
           {{"type", "BertProcessing"}, {"sep", {sep, vocab[sep]}}, {"cls", {cls, vocab[cls]}}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", unknown},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 100},
            {"vocab", vocab}}}};
}

}  // namespace meshloom::text
