// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/tokenizer_folder.h"

#include <array>
#include <span>

#include "daemon/base/input_file.h"
#include "daemon/base/sha256.h"
#include "daemon/base/stand_in.h"
#include "daemon/base/utf8.h"
#include "daemon/text/pipeline_tokenizer.h"
#include "daemon/text/sentencepiece.h"
#include "daemon/text/slow_tokenizer_files.h"
#include "daemon/text/unicode.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;

constexpr std::array kNames = {"tokenizer.json",
                               "tokenizer_config.json",
                               "tokenizer.model",
                               "vocab.json",
                               "merges.txt",
                               "vocab.txt",
                               "special_tokens_map.json",
                               "added_tokens.json",
                               "chat_template.jinja"};
constexpr const char* kGenerationConfig = "generation_config.json";

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// Reads the files of a folder and keeps the digest of what it read.
class FolderReader {
 public:
  explicit FolderReader(fs::path folder) : folder_(std::move(folder)) { update(unicode_version()); }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  bool has(const char* name) const { return is_there(folder_ / name); }
  std::string text(const char* name) {
    std::string content = base::InputFile(folder_ / name).read_text(kMostBytes);
    base::refuse_stand_in(content, path(name));
    update(name);
    update(std::to_string(content.size()));
    update(content);
    return content;
  }
  nlohmann::json json(const char* name) { return parse_json(text(name), path(name)); }
  std::string digest() const { return digest_.hex(); }

 private:
  void update(std::string_view bytes) { digest_.update(std::as_bytes(std::span(bytes))); }

  fs::path folder_;
  base::Sha256 digest_;
};

/// The class whose ids are those of the file's pieces.
SentencePieceTemplate sentencepiece_template(const JsonPart& config) {
  const std::string name = config.optional_text("tokenizer_class").value_or("LlamaTokenizer");
  if (name != "LlamaTokenizer" && name != "LlamaTokenizerFast")
    config.not_offered(
        fmt::format("the tokenizer_class \"{}\" with tokenizer.model is not known", name));
  return {config.flag("add_bos_token", true), config.flag("add_eos_token", false)};
}

/// Tokens besides the pieces of a tokenizer.model are not known.
void check_added_tokens(const JsonPart& config, const nlohmann::json& others,
                        const Tokenizer& tokenizer) {
  const auto check_token = [&](const std::string& content, const std::string& id) {
    const auto found = tokenizer.find(content);
    if (!found || std::to_string(*found) != id)
      config.not_offered(fmt::format("the added token \"{}\" is no piece {} of tokenizer.model",
                                     base::printable_text(content, 80, false), id));
  };
  if (config.has("added_tokens_decoder")) {
    const auto decoder = config.at("added_tokens_decoder");
    for (const auto& [id, token] : decoder.json().items())
      check_token(token.is_object() && token.contains("content") && token["content"].is_string()
                      ? token["content"].get<std::string>()
                      : "",
                  id);
  }
  for (const auto& [content, id] : others.items()) check_token(content, id.dump());
}

}  // namespace

std::vector<fs::path> carried_files(const fs::path& model, const fs::path& tokenizer,
                                    base::Disk& disk) {
  std::vector<fs::path> files;
  const auto add = [&](const fs::path& folder, const char* name) {
    if (!folder.empty() && disk.has(folder / name)) files.push_back(folder / name);
  };
  for (const char* name : kNames) add(tokenizer.empty() ? model : tokenizer, name);
  add(model, kGenerationConfig);
  return files;
}

std::vector<std::string> tokenizer_kinds() {
  return {"tokenizer.json", "vocab.json, merges.txt", "vocab.txt", "tokenizer.model"};
}

bool has_tokenizer(const fs::path& folder) {
  return is_there(folder / "tokenizer.json") || is_there(folder / "tokenizer.model") ||
         is_there(folder / "vocab.txt") ||
         (is_there(folder / "vocab.json") && is_there(folder / "merges.txt"));
}

FolderTokenizer open_tokenizer(const fs::path& folder) {
  if (!has_tokenizer(folder))
    throw NotFound(fmt::format("{} has no tokenizer: expected tokenizer.json, vocab.json and "
                               "merges.txt, vocab.txt, or tokenizer.model",
                               folder.string()),
                   "NO_TOKENIZER", {{"path", folder.string()}});
  FolderReader reader(folder);
  const nlohmann::json config_json = reader.has("tokenizer_config.json")
                                         ? reader.json("tokenizer_config.json")
                                         : nlohmann::json::object();
  const JsonPart config(config_json, reader.path("tokenizer_config.json"));
  FolderTokenizer result;
  std::string eos = special_token(config, "eos_token").value_or("");
  if (reader.has("tokenizer.json")) {
    result.tokenizer = std::make_shared<PipelineTokenizer>(
        read_tokenizer(reader.json("tokenizer.json"), reader.path("tokenizer.json")));
  } else if (reader.has("vocab.json") && reader.has("merges.txt")) {
    const nlohmann::json vocab = reader.json("vocab.json");
    result.tokenizer = std::make_shared<PipelineTokenizer>(read_tokenizer(
        json_of_bpe_files(vocab, reader.text("merges.txt"), config), folder.string()));
    if (eos.empty()) eos = "<|endoftext|>";
  } else if (reader.has("vocab.txt")) {
    result.tokenizer = std::make_shared<PipelineTokenizer>(
        read_tokenizer(json_of_word_piece_file(reader.text("vocab.txt"), config), folder.string()));
    if (eos.empty()) eos = special_token(config, "sep_token").value_or("[SEP]");
  } else {
    const SentencePieceTemplate around = sentencepiece_template(config);
    result.tokenizer =
        read_sentencepiece(reader.text("tokenizer.model"), around, reader.path("tokenizer.model"));
    check_added_tokens(config,
                       reader.has("added_tokens.json") ? reader.json("added_tokens.json")
                                                       : nlohmann::json::object(),
                       *result.tokenizer);
    if (eos.empty()) eos = "</s>";
  }
  if (!eos.empty()) result.eos = result.tokenizer->find(eos);
  result.identity = reader.digest();
  return result;
}

}  // namespace meshloom::text
