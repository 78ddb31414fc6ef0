// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/text_data.h"

#include <algorithm>

#include "daemon/base/field_error.h"
#include "daemon/base/sha256.h"
#include "daemon/text/byte_tokenizer.h"
#include "daemon/text/token_file.h"
#include "daemon/text/tokenizer_folder.h"
#include "daemon/train/data/chat_data.h"
#include "daemon/train/files/hf_byte_tokenizer.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/files/paths.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBytes = "bytes";
constexpr const char* kAuto = "auto";
/// What rendering the first lines of all files may take before a job is taken.
constexpr std::chrono::seconds kFirstChatTime{5};
constexpr std::string_view kModels = "models/";

TokenFormat format_of(v1::DataFormat format) {
  switch (format) {
    case v1::DATA_FORMAT_TEXT: return TokenFormat::kText;
    case v1::DATA_FORMAT_JSONL: return TokenFormat::kJsonLines;
    case v1::DATA_FORMAT_LLMC: return TokenFormat::kLlmc;
    case v1::DATA_FORMAT_NANOGPT: return TokenFormat::kNanogpt;
    default: return TokenFormat::kAuto;
  }
}

/// Tokens of the same text are the same where this is. A config without add_special_tokens has the
/// identity that it had before the field was there.
std::string identity_of(const v1::DataConfig& data, const text::FolderTokenizer& tokenizer) {
  base::Sha256 digest;
  std::string parts =
      fmt::format("{}\n{}\n{}\n{}", tokenizer.identity, data.field(), data.append_eos(),
                  data.append_eos() ? tokenizer.eos.value_or(-1) : -1);
  if (data.has_add_special_tokens()) parts += fmt::format("\n{}", data.add_special_tokens());
  digest.update(std::as_bytes(std::span(parts)));
  return digest.hex();
}

/// Tokens that stand around documents in any case are nothing to be found again.
void never_hide(const std::vector<text::TokenId>& tokens, v1::MaskedLmConfig* masked) {
  auto& special = *masked->mutable_special_tokens();
  for (const text::TokenId token : tokens)
    if (std::find(special.begin(), special.end(), token) == special.end()) special.Add(token);
}

[[noreturn]] void throw_tokenizer_needed(const v1::DataConfig& data, std::int64_t vocab_size,
                                         const std::string& field) {
  throw InvalidArgument(
      fmt::format("{}.tokenizer: {} is text, and the model has {} tokens and no tokenizer: give "
                  "the path of a Hugging Face folder that has one, a file of tokens, which "
                  "\"meshloom data tokenize\" makes, or say bytes if the model's first 256 tokens "
                  "are bytes",
                  field, data.path(), vocab_size),
      "TOKENIZER_NEEDED",
      {{"field", field + ".tokenizer"}, {"vocab_size", std::to_string(vocab_size)}});
}

void check_vocabulary(const text::Tokenizer& tokenizer, const fs::path& folder,
                      std::int64_t vocab_size, const std::string& field) {
  if (tokenizer.end() <= vocab_size) return;
  throw InvalidArgument(
      fmt::format("{}.tokenizer: the tokenizer of {} has token ids up to {}, the model's "
                  "vocab_size is {}",
                  field, folder.empty() ? kBytes : folder.filename().string(), tokenizer.end() - 1,
                  vocab_size),
      "TOKENIZER_TOO_LARGE",
      {{"field", field + ".tokenizer"},
       {"tokens", std::to_string(tokenizer.end())},
       {"vocab_size", std::to_string(vocab_size)}});
}

[[noreturn]] void refuse_without_eos(const std::string& field) {
  base::refuse_field(field + ".append_eos",
                     "the tokenizer names no eos_token to put between documents: name it in "
                     "tokenizer_config.json, or say false");
}

text::DocumentReading reading_of(const v1::DataConfig& data) {
  return {.field = data.field(),
          .skips_lines_without_text = data.skip_lines_without_text(),
          .keeps_bytes = !data.has_add_special_tokens()};
}

/// Which tokens a conversation has is said by its own setup, too.
std::string identity_of(const v1::DataConfig& data, const text::FolderTokenizer& tokenizer,
                        const ChatSetup& setup) {
  base::Sha256 digest;
  const std::string parts = identity_of(data, tokenizer) + setup.identity;
  digest.update(std::as_bytes(std::span(parts)));
  return digest.hex();
}

/// As resolve_text, of a config with data.chat.
std::string resolve_chat_text(v1::DataConfig& data, const text::FolderTokenizer& tokenizer,
                              const fs::path& folder, const RunFiles& files,
                              const std::string& field) {
  ChatSetup setup = chat_setup(data, tokenizer, folder, files.data_dir, field);
  resolve_chat_tokens(data, tokenizer, setup, folder.empty(), field);
  if (setup.tells_time) setup = chat_setup(data, tokenizer, folder, files.data_dir, field);
  const auto until = std::chrono::steady_clock::now() + kFirstChatTime;
  for_each_document_file(data, files, field, [&](const text::DocumentFile& document) {
    check_first_chat_lines(document, setup.reading, until);
  });
  return identity_of(data, tokenizer, setup);
}

}  // namespace

void for_each_document_file(const v1::DataConfig& data, const RunFiles& files,
                            const std::string& field,
                            const std::function<void(const text::DocumentFile&)>& body) {
  const auto of_path = [&](const DataFiles& found, const std::string& path_field) {
    if (!is_tokenized(data, found.format)) return;
    base::with_field(path_field, [&] {
      for (const text::DocumentFile& document : documents_of(found, data.format()))
        with_text_field(field, [&] { body(document); });
    });
  };
  of_path(files.training, field + ".path");
  if (files.validation) of_path(*files.validation, field + ".validation_path");
  for (std::size_t i = 0; i < files.sets.size(); ++i)
    of_path(files.sets[i], validation_set_field(i));
}

text::FolderTokenizer byte_tokenizer() {
  return {std::make_shared<text::ByteTokenizer>(), std::nullopt, kBytes};
}

std::vector<text::DocumentFile> documents_of(const DataFiles& files, v1::DataFormat format) {
  std::optional<text::DocumentFormat> given;
  if (format == v1::DATA_FORMAT_TEXT) given = text::DocumentFormat::kText;
  if (format == v1::DATA_FORMAT_JSONL) given = text::DocumentFormat::kJsonLines;
  std::vector<text::DocumentFile> documents;
  for (const fs::path& file : files.files) documents.push_back(text::document_file(file, given));
  return documents;
}

void fill_masked_tokens(v1::DataConfig& data, const fs::path& folder,
                        text::TokenizerCache& opened) {
  if (folder.empty()) return;
  const text::FolderTokenizer tokenizer = opened.open(folder);
  v1::MaskedLmConfig masked = data.masked_lm();
  if (!masked.has_mask_token()) {
    if (!tokenizer.mask) return;
    masked.set_mask_token(*tokenizer.mask);
  }
  // A config that was resolved before has its list, which may be empty.
  if (masked.special_tokens().empty() && !data.has_identity())
    masked.mutable_special_tokens()->Add(tokenizer.special.begin(), tokenizer.special.end());
  *data.mutable_masked_lm() = masked;
}

void resolve_document_tokens(v1::DataConfig& data, const text::FolderTokenizer& tokenizer,
                             bool is_bytes, const std::string& field) {
  if (!data.has_append_eos()) data.set_append_eos(!is_bytes && tokenizer.eos.has_value());
  if (data.append_eos()) {
    if (is_bytes) base::refuse_field(field + ".append_eos", "bytes have no token of end");
    if (!tokenizer.eos) refuse_without_eos(field);
    if (!data.has_document_end()) data.set_document_end(*tokenizer.eos);
  }
  if (!data.has_add_special_tokens()) {
    if (!data.identity().tokenizer().empty()) return;
    data.set_add_special_tokens(!is_bytes);
  }
  if (is_bytes && data.add_special_tokens())
    base::refuse_field(field + ".add_special_tokens", "bytes have no special tokens");
  if (!data.has_masked_lm()) return;
  v1::MaskedLmConfig* const masked = data.mutable_masked_lm();
  if (data.add_special_tokens()) {
    const text::Template around = tokenizer.tokenizer->around();
    never_hide(around.before, masked);
    never_hide(around.after, masked);
  }
  if (data.append_eos()) never_hide({*tokenizer.eos}, masked);
}

text::EncodeOptions encode_options(const v1::DataConfig& data,
                                   const text::FolderTokenizer& tokenizer) {
  text::EncodeOptions options;
  options.reading = reading_of(data);
  options.add_special_tokens = data.add_special_tokens();
  if (data.append_eos()) options.end = tokenizer.eos;
  return options;
}

void check_skips_lines(const v1::DataConfig& data, bool has_json_lines, const std::string& field) {
  if (data.skip_lines_without_text() && !has_json_lines)
    base::refuse_field(field + ".skip_lines_without_text", "is for .jsonl, there is none");
}

std::string tokenizer_identity(const v1::DataConfig& data, const fs::path& folder,
                               const fs::path& data_dir) {
  const auto tokenizer = folder.empty() ? byte_tokenizer() : text::open_tokenizer(folder);
  if (!data.has_chat()) return identity_of(data, tokenizer);
  return identity_of(data, tokenizer, chat_setup(data, tokenizer, folder, data_dir, "run.data"));
}

fs::path tokenizer_folder(const v1::RunConfig& config, const TokenizerSource& source) {
  constexpr const char* kField = "run.data.tokenizer";
  const std::string& name = config.data().tokenizer();
  if (name == kBytes) return {};
  if (name.starts_with(kModels)) {
    if (source.named_model.empty())
      base::refuse_field(kField, "\"{}\" is a model of a daemon, which is not asked here", name);
    return source.named_model;
  }
  if (!name.empty() && name != kAuto) {
    const fs::path given = resolve_path(name, source.data_dir, kField);
    const fs::path folder = fs::is_directory(given) ? given : given.parent_path();
    if (folder != given && given.filename() != "tokenizer.json")
      base::refuse_field(kField, "\"{}\" is neither a folder nor a tokenizer.json", name);
    base::with_field(kField, [&] { check_links(folder, source.data_dir); });
    return folder;
  }
  const fs::path folder = source_folder(config.model(), source.data_dir, source.model_folder);
  return !folder.empty() && text::has_tokenizer(folder) ? folder : fs::path();
}

bool is_tokenized(const v1::DataConfig& data, TokenFormat format) {
  return format == TokenFormat::kJsonLines ||
         (format == TokenFormat::kText && data.tokenizer() != kBytes);
}

std::string validation_set_field(std::size_t set) {
  return fmt::format("run.validation.sets[{}].path", set);
}

RunFiles find_run_files(const v1::RunConfig& config, const fs::path& data_dir,
                        const std::string& field, base::Disk& disk) {
  const v1::DataConfig& data = config.data();
  const auto find = [&](const std::string& path, const std::string& path_field) {
    const fs::path resolved = resolve_path(path, data_dir, path_field, disk);
    return base::with_field(path_field, [&] {
      return find_data_files(resolved, format_of(data.format()), data_dir, disk);
    });
  };
  RunFiles files{find(data.path(), field + ".path"), {}, {}, data_dir};
  if (const std::string& path = data.validation_path(); !path.empty())
    files.validation = find(path, field + ".validation_path");
  for (const v1::ValidationSet& set : config.validation().sets())
    files.sets.push_back(find(set.path(), validation_set_field(files.sets.size())));
  return files;
}

std::string resolve_text(v1::DataConfig& data, std::int64_t vocab_size, const fs::path& folder,
                         text::TokenizerCache& opened, const RunFiles& files,
                         const std::string& field) {
  if (folder.empty() && data.tokenizer() == kAuto && vocab_size == kByteVocabulary)
    data.set_tokenizer(kBytes);
  const auto any_is = [&](const std::function<bool(TokenFormat)>& wanted) {
    return wanted(files.training.format) ||
           (files.validation && wanted(files.validation->format)) ||
           std::any_of(files.sets.begin(), files.sets.end(),
                       [&](const DataFiles& set) { return wanted(set.format); });
  };
  check_skips_lines(
      data, any_is([](TokenFormat format) { return format == TokenFormat::kJsonLines; }), field);
  if (!any_is([&](TokenFormat format) { return is_tokenized(data, format); })) {
    if (!data.field().empty()) base::refuse_field(field + ".field", "is for .jsonl, there is none");
    const auto refuse = [&](const char* name) {
      base::refuse_field(fmt::format("{}.{}", field, name),
                         "is for text that is tokenized, there is none");
    };
    if (data.has_append_eos()) refuse("append_eos");
    if (data.has_add_special_tokens()) refuse("add_special_tokens");
    return {};
  }
  const bool is_bytes = data.tokenizer() == kBytes;
  if (folder.empty() && !is_bytes) throw_tokenizer_needed(data, vocab_size, field);
  if (data.tokenizer().empty()) data.set_tokenizer(kAuto);
  if (data.field().empty() && !data.has_chat()) data.set_field("text");
  const text::FolderTokenizer tokenizer = base::with_field(field + ".tokenizer", [&] {
    return folder.empty() ? byte_tokenizer() : opened.open(folder);
  });
  check_vocabulary(*tokenizer.tokenizer, folder, vocab_size, field);
  if (data.has_chat()) return resolve_chat_text(data, tokenizer, folder, files, field);
  resolve_document_tokens(data, tokenizer, is_bytes, field);
  const bool finds_documents = !data.pack_documents() || data.document_mask();
  if (finds_documents && !data.has_document_end())
    base::refuse_field(
        field + ".document_end",
        "is needed to find documents in tokens of text that have no eos between them "
        "({}.append_eos: true puts one there)",
        field);
  for_each_document_file(data, files, field, [&](const text::DocumentFile& document) {
    if (!tokenizer.tokenizer->cuts().any()) text::check_document_size(document);
    text::check_first_lines(document, reading_of(data));
  });
  return identity_of(data, tokenizer);
}

void check_lines(const v1::RunConfig& resolved, const fs::path& data_dir,
                 std::chrono::steady_clock::time_point until, SoundLines& sound) {
  const v1::DataConfig& data = resolved.data();
  if (data.has_chat()) return;
  const auto goes_on = [&](std::uint64_t) { return std::chrono::steady_clock::now() < until; };
  for_each_document_file(data, find_run_files(resolved, data_dir, "run.data"), "run.data",
                         [&](const text::DocumentFile& document) {
                           const text::DocumentReading reading = reading_of(data);
                           const std::string key = SoundLines::key(document, reading);
                           if (!goes_on(0) || sound.has(key)) return;
                           if (text::check_lines(document, reading, goes_on)) sound.add(key);
                         });
}

TokenizedText tokenize_text(const v1::RunConfig& resolved, std::int64_t vocab_size,
                            const fs::path& folder, const fs::path& data_dir, TokenCache& cache,
                            int threads, const TextProgress& progress) {
  const v1::DataConfig& data = resolved.data();
  TokenizedText made;
  std::optional<text::FolderTokenizer> tokenizer;
  std::optional<text::ChatReading> chat;
  const auto open = [&](const std::string& field) {
    const auto alive = [&] { progress(field, 0, 0); };
    tokenizer = folder.empty() ? byte_tokenizer() : text::open_tokenizer(folder, alive);
    made.tokenizer = identity_of(data, *tokenizer);
    if (data.has_chat()) {
      const ChatSetup setup = chat_setup(data, *tokenizer, folder, data_dir, "run.data");
      made.tokenizer = identity_of(data, *tokenizer, setup);
      made.chat_template = setup.origin;
      chat = setup.reading;
    }
    made.token_bytes = tokenizer->tokenizer->token_bytes();
    const std::string& before = data.identity().tokenizer();
    if (!before.empty() && before != made.tokenizer && !data.allow_changed())
      throw FailedPrecondition(
          "run.data.tokenizer: the tokenizer is not that of the job's "
          "submission; data.allow_changed: true would go on with it",
          "DATA_CHANGED", {{"field", "run.data.tokenizer"}});
    check_vocabulary(*tokenizer->tokenizer, folder, vocab_size, "run.data");
    if (data.append_eos() && !tokenizer->eos) refuse_without_eos("run.data");
  };
  const auto tokens_of = [&](const DataFiles& found, const std::string& field) -> fs::path {
    if (!is_tokenized(data, found.format)) return {};
    if (!tokenizer) open(field);
    TokenCache::Text text{.files = documents_of(found, data.format()),
                          .tokenizer = tokenizer->tokenizer.get(),
                          .encode = encode_options(data, *tokenizer),
                          .identity = made.tokenizer};
    text.encode.threads = threads;
    text.encode.chat = chat;
    fs::path tokens = with_text_field("run.data", [&] {
      return cache.get(
          text, [&](std::uint64_t bytes, std::uint64_t total) { progress(field, bytes, total); });
    });
    if (const auto summary = text::TokenFile(tokens).summary())
      made.made_of.push_back({field, *summary});
    return tokens;
  };
  const RunFiles files = find_run_files(resolved, data_dir, "run.data");
  made.tokens = tokens_of(files.training, "run.data.path");
  if (files.validation)
    made.validation_tokens = tokens_of(*files.validation, "run.data.validation_path");
  for (const DataFiles& set : files.sets)
    made.set_tokens.push_back(tokens_of(set, validation_set_field(made.set_tokens.size())));
  return made;
}

}  // namespace meshloom::train
