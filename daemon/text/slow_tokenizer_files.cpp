// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/slow_tokenizer_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "daemon/base/utf8.h"
#include "daemon/text/split_scanners.h"
#include "daemon/text/vocabulary.h"

namespace meshloom::text {
namespace {

using Json = nlohmann::json;

/// Refuses lines that are no UTF-8: replaced, they could become equal.
std::vector<std::string> lines_of(std::string_view text, const char* name, const JsonPart& config) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    if (!base::is_utf8(lines.back()))
      config.refuse(
          fmt::format("{} beside it has a line that is no UTF-8: {}", name, lines.size()));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// The class without the ending of its fast variant.
std::string class_of(const JsonPart& config, const std::string& otherwise) {
  std::string name = config.optional_text("tokenizer_class").value_or(otherwise);
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

/// The tokens under added_tokens_decoder as a tokenizer.json has them; an empty array without it.
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
  return tokens;
}

/// Those of added_tokens_decoder; the named special tokens too, as far as the vocabulary has them.
Json added_tokens(const JsonPart& config, const Json& vocab,
                  const std::vector<std::pair<const char*, const char*>>& named) {
  Json tokens = decoded_added_tokens(config);
  for (const auto& [key, otherwise] : named) {
    const std::string content = special_token(config, key).value_or(otherwise);
    const auto at = vocab.find(content);
    const bool is_there = std::any_of(tokens.begin(), tokens.end(), [&](const Json& token) {
      return token.value("content", "") == content;
    });
    if (at != vocab.end() && !is_there)
      tokens.push_back({{"id", *at},
                        {"content", content},
                        {"single_word", false},
                        {"lstrip", false},
                        {"rstrip", false},
                        {"normalized", false},
                        {"special", true}});
  }
  return tokens;
}

}  // namespace

std::optional<std::string> special_token(const JsonPart& config, std::string_view key) {
  if (!config.has(key)) return std::nullopt;
  const JsonPart part = config.at(key);
  return part.json().is_object() ? part.text("content") : part.text();
}

Json json_of_bpe_files(const Json& vocab, std::string_view merges, const JsonPart& config) {
  const std::string name = class_of(config, "GPT2Tokenizer");
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
          {"added_tokens", added_tokens(config, vocab,
                                        {{"eos_token", "<|endoftext|>"},
                                         {"bos_token", "<|endoftext|>"},
                                         {"unk_token", "<|endoftext|>"},
                                         {"pad_token", "<|endoftext|>"}})},
          {"normalizer", is_qwen ? Json{{"type", "NFC"}} : Json()},
          {"pre_tokenizer", pre_tokenizer},
          {"decoder", level},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", pairs}}}};
}

Json json_of_word_piece_file(std::string_view text, const JsonPart& config) {
  const std::string name = class_of(config, "BertTokenizer");
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
          {"added_tokens", added_tokens(config, vocab,
                                        {{"pad_token", "[PAD]"},
                                         {"unk_token", "[UNK]"},
                                         {"cls_token", "[CLS]"},
                                         {"sep_token", "[SEP]"},
                                         {"mask_token", "[MASK]"}})},
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
