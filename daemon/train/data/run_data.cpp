// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/run_data.h"

#include <cmath>

#include "daemon/train/data/data_identity.h"
#include "daemon/train/files/hf_byte_tokenizer.h"
#include "daemon/train/files/wide_tokens.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

/// One of the data paths of a config.
struct OpenedPath {
  std::shared_ptr<const TokenStream> stream;  ///< null: text whose tokens are not made yet
  v1::DataIdentity identity;
  TokenBytes bytes;  ///< of text, that its tokens stand for
};

/// `tokens` is the file of its tokens, if they are made.
OpenedPath open_path(const v1::DataConfig& data, const DataFiles& files, const fs::path& tokens,
                     const std::string& tokenizer, const std::string& field, base::Disk& disk) {
  const auto open = [&](const DataFiles& found) {
    return std::make_shared<const TokenStream>(TokenStream::open(found, disk));
  };
  OpenedPath opened;
  if (is_tokenized(data, files.format)) {
    opened.identity =
        base::with_field(field, [&] { return identify_text(files, tokenizer, disk); });
    if (tokens.empty()) return opened;
    opened.stream = open(find_data_files(tokens, TokenFormat::kLlmc, {}, disk));
    opened.identity.set_tokens(opened.stream->size());
    opened.bytes = mean_token_bytes(*opened.stream);
    return opened;
  }
  base::with_field(field, [&] {
    opened.stream = open(files);
    opened.identity = identify(*opened.stream);
    opened.bytes = mean_token_bytes(*opened.stream);
  });
  return opened;
}

/// What the data's options and the model ask of the tokens. `field` is that of the section.
void check_stream(const v1::DataConfig& data, const TokenStream& stream, std::int64_t vocab_size,
                  const std::string& field) {
  if (stream.is_chat() && data.has_document_end())
    base::refuse_field(field + ".document_end",
                       "is not for conversations, which are told apart without it");
  if (stream.is_chat() && data.has_masked_lm())
    base::refuse_field(field + ".path",
                       "holds conversations, which are for models that learn the next token");
  const bool wants_documents =
      (!data.pack_documents() || data.document_mask()) && !stream.is_chat();
  if (wants_documents && stream.format() != TokenFormat::kText && !data.has_document_end())
    base::refuse_field(field + ".document_end", "is needed to find the documents of a {} file",
                       token_format_name(stream.format()));
  // Upper halves of the ids of a large vocabulary are more than 0.
  if (vocab_size > kNarrowVocabulary)
    base::with_field(field + ".path",
                     [&] { refuse_wide_tokens(stream, (vocab_size - 1) / kNarrowVocabulary); });
  if (stream.format() == TokenFormat::kText && vocab_size < kByteVocabulary)
    base::refuse_field(field + ".path", "text has 256 byte tokens, the model's vocab_size is {}",
                       vocab_size);
}

DatasetOptions dataset_options(const v1::RunConfig& config, const nn::ModelConfig& model) {
  const v1::DataConfig& data = config.data();
  DatasetOptions options;
  options.seq_len = config.training().seq_len();
  options.vocab_size = model.vocab_size;
  options.pack_documents = data.pack_documents();
  options.document_mask = data.document_mask();
  options.reset_positions = data.reset_positions();
  if (data.has_document_end()) options.document_end = data.document_end();
  if (data.has_masked_lm()) {
    const v1::MaskedLmConfig& masked = data.masked_lm();
    options.masked = MaskedLmOptions{
        .vocab_size = model.vocab_size,
        .mask_token = masked.mask_token(),
        .probability = masked.probability(),
        .mask_share = masked.mask_share(),
        .random_share = masked.random_share(),
        .special_tokens = {masked.special_tokens().begin(), masked.special_tokens().end()}};
    // A model that sees both sides must not see padding.
    if (!data.pack_documents()) options.document_mask = true;
  }
  return options;
}

void check_trained_on(const v1::RunConfig& config, const RunData& data) {
  if (const ChatSamples* chat = data.training->chat(); chat != nullptr && chat->size() == 0)
    base::refuse_field("run.data.path",
                       "none of its {} conversations has a token to learn from in its first "
                       "seq_len + 1 = {} tokens",
                       chat->cuts().left_out, config.training().seq_len() + 1);
  if (data.training->size() == 0)
    base::refuse_field("run.data.path",
                       "{} training tokens hold no sample of seq_len + 1 = {} tokens",
                       data.training->tokens(), config.training().seq_len() + 1);
  if (data.training->size() < config.training().global_batch_size())
    base::refuse_field("run.training.global_batch_size",
                       "{} is more than the {} samples of {} tokens that the data holds",
                       config.training().global_batch_size(), data.training->size(),
                       config.training().seq_len());
}

}  // namespace

RunData open_run_data(const v1::RunConfig& config, const nn::ModelConfig& model,
                      const fs::path& data_dir, const std::string& field, const TokenizedText& text,
                      base::Disk& disk) {
  return open_run_data(config, model, find_run_files(config, data_dir, field, disk), field, text,
                       disk);
}

RunData open_run_data(const v1::RunConfig& config, const nn::ModelConfig& model,
                      const RunFiles& files, const std::string& field, const TokenizedText& text,
                      base::Disk& disk) {
  const v1::DataConfig& data = config.data();
  const TokenBytes by_token =
      text.token_bytes.empty() ? TokenBytes() : TokenBytes(text.token_bytes);
  const auto open = [&](const DataFiles& found, const fs::path& tokens, const std::string& path) {
    OpenedPath opened = open_path(data, found, tokens, text.tokenizer, path, disk);
    if (!opened.stream) return opened;
    if (!tokens.empty() && by_token.known()) opened.bytes = by_token;
    check_stream(data, *opened.stream, model.vocab_size, field);
    return opened;
  };
  const DatasetOptions options = dataset_options(config, model);
  DatasetOptions all = options;  // losses are of every token
  all.keep_rest = true;
  const auto part = [](const OpenedPath& opened, TokenRange range, DatasetOptions as) {
    as.bytes = opened.bytes;
    return std::make_shared<const Dataset>(opened.stream, range, as);
  };
  const auto whole = [&](const OpenedPath& opened, const DatasetOptions& as) {
    return part(opened, {0, opened.stream->size()}, as);
  };
  const OpenedPath training = open(files.training, text.tokens, field + ".path");
  const RunData not_tokenized{nullptr, nullptr, {}, training.identity};
  const auto& stream = training.stream;
  RunData data_of_run = not_tokenized;
  for (std::size_t i = 0; i < files.sets.size(); ++i) {
    const fs::path tokens = i < text.set_tokens.size() ? text.set_tokens[i] : fs::path();
    const OpenedPath set = open(files.sets[i], tokens, validation_set_field(i));
    if (!set.stream) return not_tokenized;
    data_of_run.validation_sets.push_back(whole(set, all));
  }
  if (files.validation) {
    const OpenedPath other =
        open(*files.validation, text.validation_tokens, field + ".validation_path");
    if (!stream || !other.stream) return not_tokenized;
    data_of_run.training = whole(training, options);
    data_of_run.validation = whole(other, all);
    return data_of_run;
  }
  if (!stream) return not_tokenized;
  const auto held_out = static_cast<std::int64_t>(
      std::floor(data.validation_split() * static_cast<double>(stream->size())));
  std::int64_t split = stream->size() - held_out;
  if ((!options.pack_documents || stream->is_chat()) && held_out > 0)
    split = next_document_start(*stream, options, split);
  data_of_run.training = part(training, {0, split}, options);
  data_of_run.validation = part(training, {split, stream->size()}, all);
  return data_of_run;
}

void check_enough(const v1::RunConfig& config, const RunData& data) {
  if (!data.training) return;  // its tokens are not made yet
  if (config.training().steps() > 0) check_trained_on(config, data);
  const auto check_validated_on = [](const Dataset& dataset, const std::string& field) {
    if (dataset.size() == 0)
      base::refuse_field(field, "{} tokens hold nothing to predict", dataset.tokens());
  };
  const bool has_path = !config.data().validation_path().empty();
  if (config.validation().interval() > 0)
    check_validated_on(*data.validation,
                       has_path ? "run.data.validation_path" : "run.data.validation_split");
  for (std::size_t i = 0; i < data.validation_sets.size(); ++i)
    check_validated_on(*data.validation_sets[i], validation_set_field(i));
}

}  // namespace meshloom::train
