// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/tokenizer_folder.h"

#include <array>
#include <functional>
#include <set>
#include <span>

#include "daemon/base/field_error.h"
#include "daemon/base/input_file.h"
#include "daemon/base/sha256.h"
#include "daemon/base/stand_in.h"
#include "daemon/base/utf8.h"
#include "daemon/text/pipeline_tokenizer.h"
#include "daemon/text/sentencepiece.h"
#include "daemon/text/slow_tokenizer_files.h"
#include "daemon/text/special_tokens.h"
#include "daemon/text/unicode.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// Of a file: the largest that are published have half of it.
constexpr std::uint64_t kMostBytes = std::uint64_t{128} << 20;

/// Opening takes less for a byte of a file than encoding does for one of a text.
constexpr std::size_t kOpenShare = 4;

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

/// Reads the files of a folder, for which it allows the budget more, and keeps the digest of what
/// it read.
class FolderReader {
 public:
  FolderReader(fs::path folder, const StopCheck& stop)
      : folder_(std::move(folder)), stop_(stop), budget_(stop) {
    update(unicode_version());
  }

  Budget& budget() { return budget_; }

  std::string folder() const { return folder_.string(); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  bool has(const char* name) const { return is_there(folder_ / name); }
  std::string text(const char* name) {
    if (stop_) stop_();
    std::string content = content_of(name);
    update(name);
    update(std::to_string(content.size()));
    update(content);
    return content;
  }
  Json json(const char* name) { return parsed(text(name), name); }
  Json parsed(std::string_view content, const char* name) const {
    return parse_json(content, path(name), stop_);
  }
  /// Does not count for the digest: what becomes of it does. An empty object where there is none.
  Json aside(const char* name) {
    if (!has(name)) return Json::object();
    Json json = parsed(content_of(name), name);
    if (!json.is_object()) base::refuse_field(path(name), "is no object of JSON");
    return json;
  }
  void update(std::string_view bytes) { digest_.update(std::as_bytes(std::span(bytes))); }
  std::string digest() const { return digest_.hex(); }

 private:
  std::string content_of(const char* name) {
    std::string content = base::InputFile(folder_ / name).read_text(kMostBytes);
    base::refuse_stand_in(content, path(name));
    budget_.allow(content.size() / kOpenShare);
    return content;
  }

  fs::path folder_;
  StopCheck stop_;
  Budget budget_;
  base::Sha256 digest_;
};

/// The class whose ids are those of the file's pieces.
SentencePieceTemplate sentencepiece_template(const JsonPart& config) {
  const std::string name = config.text("tokenizer_class");
  if (name != "LlamaTokenizer")
    config.not_offered(
        fmt::format("the tokenizer_class \"{}\" with tokenizer.model is not known", name));
  return {config.flag("add_bos_token", true), config.flag("add_eos_token", false)};
}

/// Tokens besides the pieces of a tokenizer.model are not known.
void check_added_tokens(const JsonPart& config, const Json& others, const Tokenizer& tokenizer) {
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

/// What a folder says beside its vocabulary.
struct FolderConfig {
  Json own;    ///< tokenizer_config.json as it is
  Json all;    ///< with the files that are read into it
  Json model;  ///< config.json
  std::string class_name = {};
};

FolderConfig read_config(FolderReader& reader) {
  constexpr const char* kConfig = "tokenizer_config.json";
  FolderConfig config;
  config.own = reader.has(kConfig) ? reader.json(kConfig) : Json::object();
  if (!config.own.is_object()) base::refuse_field(reader.path(kConfig), "is no object of JSON");
  constexpr const char* kMap = "special_tokens_map.json";
  config.all = with_special_tokens_map(config.own, {reader.aside(kMap), reader.path(kMap)});
  config.model = reader.aside("config.json");
  return config;
}

/// Of files whose tokenizer is a class of transformers: names it in the config. Where the folder
/// does not say which, it is `otherwise`.
void set_class(const std::string& otherwise, const FolderReader& reader, FolderConfig& config) {
  const JsonPart part(config.all, reader.path("tokenizer_config.json"));
  config.class_name = tokenizer_class(part, {config.model, reader.path("config.json")}, false);
  if (config.class_name.empty()) config.class_name = named_class(part).value_or(otherwise);
  config.all["tokenizer_class"] = config.class_name;
}

/// The tokens of one text are no longer those of an older version of this program, which took the
/// ids of the file and named no others: the folder counts as another one.
void tell_added_tokens(const PipelineTokenizer& tokenizer, const Json& in_file,
                       FolderReader& reader) {
  const std::vector<AddedToken>& tokens = tokenizer.added_tokens();
  bool same = in_file.size() == tokens.size();
  for (std::size_t i = 0; same && i < tokens.size(); ++i)
    same = in_file[i].at("content") == tokens[i].content && in_file[i].at("id") == tokens[i].id;
  if (same) return;
  reader.update("added tokens");
  for (const AddedToken& token : tokens)
    reader.update(fmt::format("{} {} {}\n", token.id, token.content.size(), token.content));
}

std::shared_ptr<const Tokenizer> made_pipeline(const Json& json, const std::string& path,
                                               const std::vector<std::string>& special,
                                               FolderReader& reader) {
  auto tokenizer =
      std::make_shared<PipelineTokenizer>(read_tokenizer(json, path, special, reader.budget()));
  const auto at = json.find("added_tokens");
  tell_added_tokens(*tokenizer, at == json.end() ? Json::array() : *at, reader);
  return tokenizer;
}

std::shared_ptr<const Tokenizer> open_json(FolderReader& reader, FolderConfig& config) {
  constexpr const char* kName = "tokenizer.json";
  const std::string text = reader.text(kName);
  const JsonPart part(config.all, reader.path("tokenizer_config.json"));
  config.class_name = tokenizer_class(part, {config.model, reader.path("config.json")},
                                      text.find("\"ByteLevel\"") != std::string::npos);
  std::vector<std::string> special;
  for (const char* name : kSpecialTokenNames)
    if (const auto token = special_token(part, config.class_name, name)) special.push_back(*token);
  return made_pipeline(reader.parsed(text, kName), reader.path(kName), special, reader);
}

/// `json_of` makes a tokenizer.json of the vocabulary and a config.
std::shared_ptr<const Tokenizer> open_slow(const std::string& otherwise, FolderReader& reader,
                                           FolderConfig& config,
                                           const std::function<Json(const JsonPart&)>& json_of) {
  constexpr const char* kAdded = "added_tokens.json";
  config.all = with_added_tokens_file(config.all, {reader.aside(kAdded), reader.path(kAdded)});
  set_class(otherwise, reader, config);
  const std::string path = reader.path("tokenizer_config.json");
  const Json json = json_of({config.all, path});
  // An older version of this program read that file alone.
  if (config.all != config.own) {
    Json before;
    try {
      before = json_of({config.own, path});
    } catch (const Error&) {
      before = nullptr;  // it refused the folder
    }
    if (before != json) reader.update("added tokens and class\n" + json.dump());
  }
  return made_pipeline(json, reader.folder(), {}, reader);
}

std::shared_ptr<const Tokenizer> open_sentencepiece(FolderReader& reader, FolderConfig& config) {
  set_class("LlamaTokenizer", reader, config);
  const JsonPart part(config.all, reader.path("tokenizer_config.json"));
  const SentencePieceTemplate around = sentencepiece_template(part);
  const auto tokenizer = read_sentencepiece(reader.text("tokenizer.model"), around,
                                            reader.path("tokenizer.model"), reader.budget());
  check_added_tokens(
      part, reader.has("added_tokens.json") ? reader.json("added_tokens.json") : Json::object(),
      *tokenizer);
  return tokenizer;
}

/// Those that the vocabulary has.
void name_special_tokens(const JsonPart& config, const std::string& class_name,
                         FolderTokenizer& result) {
  std::set<TokenId> ids;
  for (const std::string_view name : kSpecialTokenNames) {
    const auto token = special_token(config, class_name, name);
    const auto id = token ? result.tokenizer->find(*token) : std::nullopt;
    if (!id) continue;
    ids.insert(*id);
    if (name == "mask_token") result.mask = id;
  }
  result.special.assign(ids.begin(), ids.end());
}

std::shared_ptr<const Tokenizer> open_files(FolderReader& reader, FolderConfig& config) {
  if (reader.has("tokenizer.json")) return open_json(reader, config);
  if (reader.has("vocab.json") && reader.has("merges.txt")) {
    const Json vocab = reader.json("vocab.json");
    const std::string merges = reader.text("merges.txt");
    return open_slow("GPT2Tokenizer", reader, config,
                     [&](const JsonPart& part) { return json_of_bpe_files(vocab, merges, part); });
  }
  if (!reader.has("vocab.txt")) return open_sentencepiece(reader, config);
  const std::string vocab = reader.text("vocab.txt");
  return open_slow("BertTokenizer", reader, config,
                   [&](const JsonPart& part) { return json_of_word_piece_file(vocab, part); });
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

FolderTokenizer open_tokenizer(const fs::path& folder, const StopCheck& stop) {
  if (!has_tokenizer(folder))
    throw NotFound(fmt::format("{} has no tokenizer: expected tokenizer.json, vocab.json and "
                               "merges.txt, vocab.txt, or tokenizer.model",
                               folder.string()),
                   "NO_TOKENIZER", {{"path", folder.string()}});
  FolderReader reader(folder, stop);
  FolderConfig config = read_config(reader);
  FolderTokenizer result;
  result.tokenizer = open_files(reader, config);
  const JsonPart part(config.all, reader.path("tokenizer_config.json"));
  result.eos = document_end(part, config.class_name, {config.model, reader.path("config.json")},
                            *result.tokenizer);
  result.named = named_tokens(part, config.class_name);
  result.identity = reader.digest();
  name_special_tokens({config.all, reader.path("tokenizer_config.json")}, config.class_name,
                      result);
  return result;
}

}  // namespace meshloom::text
