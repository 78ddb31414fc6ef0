// SPDX-License-Identifier: Apache-2.0
// Text as training data: which tokenizer makes its tokens, and the tokens.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/field_error.h"
#include "daemon/text/document_encoder.h"
#include "daemon/text/tokenizer_cache.h"
#include "daemon/text/tokenizer_folder.h"
#include "daemon/train/data/sound_lines.h"
#include "daemon/train/data/token_cache.h"
#include "daemon/train/files/token_stream.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// The source says where the tokenizer of a config is to be found.
struct TokenizerSource {
  std::filesystem::path data_dir;
  std::filesystem::path model_folder = {};  ///< as RunFolders::model
  /// Absolute folder of the model that config.data.tokenizer names as "models/NAME".
  std::filesystem::path named_model = {};
};

/// Returns the folder whose tokenizer a config means: of its data, of prompts and samples, of
/// exports. Empty if there is none, or it is the bytes'. Throws with the field run.data.tokenizer
/// if a folder is named that is not there.
std::filesystem::path tokenizer_folder(const v1::RunConfig& config, const TokenizerSource& source);

/// A file of tokens was made of this.
struct TokenizedFiles {
  std::string field;  ///< of their path: "run.data.path"
  text::TokenizeSummary summary;
};

/// TokenizedText holds files of tokens that were made of the text of a config.
struct TokenizedText {
  std::filesystem::path tokens;                   ///< of data.path; empty if it is no text
  std::filesystem::path validation_tokens;        ///< of data.validation_path; empty likewise
  std::string tokenizer;                          ///< DataIdentity.tokenizer
  std::vector<std::filesystem::path> set_tokens;  ///< by validation set; empty likewise
  std::vector<TokenizedFiles> made_of = {};       ///< where the files of tokens say so
  std::string chat_template = {};                 ///< ChatSetup::origin
  /// The tokenizer gave these (text::Tokenizer::token_bytes).
  std::vector<std::uint32_t> token_bytes = {};
};

/// Returns the tokenizer that an empty tokenizer_folder stands for.
text::FolderTokenizer byte_tokenizer();

/// Tells whether files of a format are tokenized before they are trained on: all text but that
/// whose bytes are the tokens.
bool is_tokenized(const v1::DataConfig& data, TokenFormat format);

/// RunFiles holds the files of all paths of a config.
struct RunFiles {
  DataFiles training;
  std::optional<DataFiles> validation;  ///< of data.validation_path, if it is given
  std::vector<DataFiles> sets;          ///< of validation.sets
  std::filesystem::path data_dir = {};  ///< in which they were found
};
/// `field` is the path of config.data in messages.
RunFiles find_run_files(const v1::RunConfig& config, const std::filesystem::path& data_dir,
                        const std::string& field, base::Disk& disk = base::own_disk());
/// Returns each of the files as it will be read. `format`: DataConfig.format. Throws as
/// text::document_file.
std::vector<text::DocumentFile> documents_of(const DataFiles& files, v1::DataFormat format);
/// Fills in, for a masked language model whose config says nothing of it, what hides tokens and
/// which are never hidden, as the tokenizer of the folder names them. Does nothing where there is
/// no folder.
void fill_masked_tokens(v1::DataConfig& data, const std::filesystem::path& folder,
                        text::TokenizerCache& opened);
/// Fills in and checks which tokens stand around documents: data.append_eos, document_end and
/// add_special_tokens. Those are never hidden from a masked language model (masked_lm).
/// add_special_tokens stays as it is, left out, where data.identity says that text was tokenized
/// without it: by a daemon that did not know the field, whose tokens such a config keeps.
void resolve_document_tokens(v1::DataConfig& data, const text::FolderTokenizer& tokenizer,
                             bool is_bytes, const std::string& field);
/// Returns how text is encoded by a config that was resolved so; in one thread. One without
/// add_special_tokens has the tokens of a daemon that did not know the field: none around
/// documents, and files of text as their bytes are.
text::EncodeOptions encode_options(const v1::DataConfig& data,
                                   const text::FolderTokenizer& tokenizer);
/// Refuses data.skip_lines_without_text where none of the files have such lines.
void check_skips_lines(const v1::DataConfig& data, bool has_json_lines, const std::string& field);
/// Returns DataIdentity.tokenizer of a resolved config whose text the tokenizer of `folder` reads.
std::string tokenizer_identity(const v1::DataConfig& data, const std::filesystem::path& folder,
                               const std::filesystem::path& data_dir);
/// Calls body(document) for each file that is read as documents, of all paths of a config; errors
/// get the field of the path, or that of the text in lines of JSON.
void for_each_document_file(const v1::DataConfig& data, const RunFiles& files,
                            const std::string& field,
                            const std::function<void(const text::DocumentFile& document)>& body);
/// Gives the field of text of the section `data` to what `body` throws about lines of JSON without
/// that field.
template <typename Body>
auto with_text_field(const std::string& data, Body&& body) {
  try {
    return body();
  } catch (const text::NoTextField&) {
    base::with_field(data + ".field", [] { throw; });
    throw;
  }
}
/// Returns "run.validation.sets[1].path"
std::string validation_set_field(std::size_t set);

/// If some of the data are to be tokenized: fills in data.tokenizer, field and what
/// resolve_document_tokens does, of conversations (resolve_chat comes before) what
/// resolve_chat_tokens does, and checks the tokenizer against the model's vocabulary. `folder`
/// comes from tokenizer_folder, `files` from find_run_files. Returns the tokenizer's identity;
/// empty if nothing is to be tokenized. Throws InvalidArgument with the field: TOKENIZER_NEEDED,
/// TOKENIZER_TOO_LARGE, NO_FIELD where the first lines of JSON lines have no text under data.field,
/// what text::open_tokenizer, document_file, check_document_size and chat_data.h throw.
std::string resolve_text(v1::DataConfig& data, std::int64_t vocab_size,
                         const std::filesystem::path& folder, text::TokenizerCache& opened,
                         const RunFiles& files, const std::string& field);

/// Reads all lines of JSON of a resolved config, until `until` at most, but for files that are
/// known to be sound, and adds those that it found so. Throws with the field as resolve_text does
/// for the first lines, of which it reads a few KiB.
void check_lines(const v1::RunConfig& resolved, const std::filesystem::path& data_dir,
                 std::chrono::steady_clock::time_point until, SoundLines& sound);

/// The function is told the progress: of which field, and how much of its bytes.
using TextProgress =
    std::function<void(const std::string& field, std::uint64_t bytes, std::uint64_t total_bytes)>;

/// Makes or finds the tokens of a resolved config; nothing in it if the config has no text to be
/// tokenized. `progress` may throw to end it. Throws as TokenCache::get, and before anything is
/// made FailedPrecondition (DATA_CHANGED) if the tokenizer is not the one that the config was
/// resolved with, unless data.allow_changed, and InvalidArgument if that other one does not fit the
/// model.
TokenizedText tokenize_text(const v1::RunConfig& resolved, std::int64_t vocab_size,
                            const std::filesystem::path& folder,
                            const std::filesystem::path& data_dir, TokenCache& cache, int threads,
                            const TextProgress& progress);

}  // namespace meshloom::train
