// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/data_inspection.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "daemon/base/field_error.h"
#include "daemon/base/input_file.h"
#include "daemon/base/utf8.h"
#include "daemon/control/jobs/chat_notes.h"
#include "daemon/control/services/chat_inspection.h"
#include "daemon/text/learned_tokens.h"
#include "daemon/text/token_file.h"
#include "daemon/train/files/npy_tokens.h"
#include "daemon/train/files/paths.h"
#include "daemon/train/files/token_stream.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kDefaultSeqLen = 1024;
constexpr std::int64_t kMostSeqLen = std::int64_t{1} << 24;
/// Of the sample's text: messages are limited.
constexpr std::size_t kMostSampleBytes = std::size_t{1} << 20;
constexpr std::int64_t kTokensAtOnce = std::int64_t{1} << 20;

void tell_size(std::int64_t tokens, v1::DataInspection* message) {
  message->set_tokens(tokens);
  // A sample's labels are its tokens one further on.
  message->set_samples(std::max<std::int64_t>(0, (tokens - 1) / message->seq_len()));
}

/// The text of the first tokens: of all of them, or more than a sample may have.
std::string sample_text(const text::Tokenizer& tokenizer, std::span<const text::TokenId> tokens,
                        const std::function<void()>& alive) {
  constexpr std::size_t kFirst = 4096;
  text::Budget budget(alive);
  for (std::size_t count = kFirst;; count *= 2) {
    const auto first = tokens.first(std::min(count, tokens.size()));
    std::string text = tokenizer.decode(first, false, budget);
    if (first.size() == tokens.size() || text.size() > kMostSampleBytes) return text;
  }
}

void tell_sample(const DataReading& reading, const std::vector<text::TokenId>& tokens,
                 const InspectionOptions& options, v1::DataInspection* message) {
  message->set_sample_tokens(static_cast<std::int64_t>(tokens.size()));
  const auto bytes = static_cast<std::uint64_t>(message->bytes());
  const auto alive = [&] { options.progress(bytes, bytes); };
  std::string sample = reading.tokenizer.tokenizer
                           ? sample_text(*reading.tokenizer.tokenizer, tokens, alive)
                           : fmt::format("{}", fmt::join(tokens, " "));
  if (sample.size() > kMostSampleBytes) {
    sample.resize(base::utf8_cut(sample, kMostSampleBytes));
    message->set_sample_is_cut(true);
  }
  message->set_sample(std::move(sample));
}

/// What is told of the samples of documents, whose tokens come part by part.
struct FirstTokens {
  std::size_t wanted = 0;
  std::vector<text::TokenId> tokens = {};

  void add(const std::vector<text::TokenId>& part) {
    const std::size_t more = std::min(wanted - tokens.size(), part.size());
    tokens.insert(tokens.end(), part.begin(), part.begin() + static_cast<long>(more));
  }
};

void tell_chat(ChatInspection& conversations, const DataReading& reading,
               const InspectionOptions& options, v1::DataInspection* message) {
  const auto bytes = static_cast<std::uint64_t>(message->bytes());
  base::with_field("run.data.tokenizer", [&] {
    conversations.tell(
        reading.tokenizer.tokenizer, [&] { options.progress(bytes, bytes); }, message);
  });
}

void inspect_text(const train::DataFiles& files, DataReading& reading,
                  const InspectionOptions& options, v1::DataInspection* message) {
  const std::optional<train::ChatSetup> chat = resolve_reading(reading, options.data_dir);
  const v1::DataConfig& data = reading.config.data();
  train::check_skips_lines(data, files.format == train::TokenFormat::kJsonLines, "run.data");
  if (data.has_document_end()) message->set_document_end(data.document_end());
  message->set_tokenizer(data.tokenizer());
  FirstTokens first{static_cast<std::size_t>(message->seq_len())};
  ChatInspection conversations(message->seq_len());
  const std::uint64_t total = bytes_of_files(files.files);
  text::EncodeOptions encode = train::encode_options(data, reading.tokenizer);
  encode.threads = options.threads;
  if (chat) encode.chat = chat->reading;
  encode.progress = [&](std::uint64_t bytes) { options.progress(bytes, total); };
  const text::TokenizeSummary summary = train::with_text_field("run.data", [&] {
    return text::encode_documents(train::documents_of(files, data.format()),
                                  *reading.tokenizer.tokenizer, encode,
                                  [&](const std::vector<text::TokenId>& tokens) {
                                    if (chat)
                                      conversations.add(tokens);
                                    else
                                      first.add(tokens);
                                  });
  });
  message->set_documents(summary.documents);
  message->set_bytes(static_cast<std::int64_t>(summary.bytes));
  message->set_replaced_documents(summary.replaced_documents);
  message->set_skipped_lines(summary.skipped_lines);
  tell_size(summary.tokens, message);
  if (chat) {
    *message->mutable_chat() = chat_data(data.chat(), chat->origin, summary);
    return tell_chat(conversations, reading, options, message);
  }
  base::with_field("run.data.tokenizer",
                   [&] { tell_sample(reading, first.tokens, options, message); });
}

/// Documents by what "data tokenize" has written into the files; nothing if one does not say.
std::optional<std::int64_t> documents_in(const train::DataFiles& files) {
  std::int64_t documents = 0;
  try {
    for (const fs::path& path : files.files) {
      const auto summary = text::TokenFile(path).summary();
      if (!summary) return std::nullopt;
      documents += summary->documents;
    }
  } catch (const InvalidArgument&) {
    return std::nullopt;  // of another program
  }
  return documents;
}

void inspect_tokens(const train::DataFiles& files, const DataReading& reading,
                    const InspectionOptions& options, v1::DataInspection* message) {
  const train::TokenStream stream =
      base::with_field("run.data.path", [&] { return train::TokenStream::open(files); });
  const text::FolderTokenizer& tokenizer = reading.tokenizer;
  message->set_tokenizer(reading.config.data().tokenizer());
  message->set_bytes(static_cast<std::int64_t>(bytes_of_files(files.files)));
  message->set_dtype(stream.token_bytes() == 2 ? "uint16" : "uint32");
  tell_size(stream.size(), message);
  std::vector<text::TokenId> first;
  ChatInspection conversations(message->seq_len());
  std::int64_t ends = 0, outside = 0;
  std::vector<std::int64_t> part;
  for (std::int64_t at = 0; at < stream.size(); at += kTokensAtOnce) {
    part.resize(static_cast<std::size_t>(std::min(kTokensAtOnce, stream.size() - at)));
    stream.read_chat(at, part);
    for (std::int64_t& token : part) {
      if (stream.is_chat()) {
        conversations.add(static_cast<text::TokenId>(token));
        token = text::id_of(static_cast<text::TokenId>(token));
      }
      if (first.size() < static_cast<std::size_t>(message->seq_len()))
        first.push_back(static_cast<text::TokenId>(token));
      ends += token == tokenizer.eos;
      outside += tokenizer.tokenizer && token >= tokenizer.tokenizer->end();
    }
    options.progress(static_cast<std::uint64_t>(at) * stream.token_bytes(),
                     static_cast<std::uint64_t>(message->bytes()));
  }
  if (ends > 0) message->set_document_end(*tokenizer.eos);
  if (const auto documents = documents_in(files))
    message->set_documents(*documents);
  else if (ends > 0)
    message->set_documents(ends);
  message->set_outside_vocabulary(outside);
  if (stream.is_chat()) {
    message->clear_document_end();
    return tell_chat(conversations, reading, options, message);
  }
  base::with_field("run.data.tokenizer", [&] { tell_sample(reading, first, options, message); });
}

void inspect_npy(const fs::path& path, const DataReading& reading, const InspectionOptions& options,
                 v1::DataInspection* message) {
  const train::NpyTokens array(path);
  message->set_format("npy");
  message->set_files(1);
  message->set_tokenizer(reading.config.data().tokenizer());
  message->set_bytes(static_cast<std::int64_t>(array.file_bytes()));
  message->set_dtype(array.dtype());
  message->set_not_trained_on(
      "no job reads .npy: write its numbers as uint16 into a .bin (nanogpt), or as llm.c does");
  tell_size(array.size(), message);
  if (!array.is_readable()) return;
  const std::vector<std::int64_t> first = array.read_first(message->seq_len());
  std::int64_t outside = 0;
  for (const std::int64_t token : first)
    outside +=
        token < 0 || (reading.tokenizer.tokenizer && token >= reading.tokenizer.tokenizer->end());
  message->set_outside_vocabulary(outside);
  std::vector<text::TokenId> tokens(first.size());
  std::transform(first.begin(), first.end(), tokens.begin(),
                 [](std::int64_t token) { return static_cast<text::TokenId>(token); });
  tell_sample(reading, tokens, options, message);
}

}  // namespace

std::uint64_t bytes_of_files(const std::vector<fs::path>& files) {
  std::uint64_t bytes = 0;
  for (const fs::path& file : files) bytes += base::InputFile(file).size();
  return bytes;
}

v1::DataInspection inspect_data(const std::string& path, DataReading reading,
                                const InspectionOptions& options) {
  v1::DataInspection message;
  message.set_path(path);
  const std::optional<std::int64_t>& given = options.seq_len;
  if (given && (*given < 1 || *given > kMostSeqLen))
    base::refuse_field("seq_len",
                       "got {}, expected 1 to {}; leave it out for the context of the "
                       "tokenizer's model",
                       *given, kMostSeqLen);
  message.set_seq_len(given                 ? *given
                      : reading.context > 0 ? std::min(reading.context, kMostSeqLen)
                                            : kDefaultSeqLen);
  message.set_seq_len_source(given                 ? v1::SEQ_LEN_SOURCE_REQUEST
                             : reading.context > 0 ? v1::SEQ_LEN_SOURCE_MODEL
                                                   : v1::SEQ_LEN_SOURCE_DEFAULT);
  if (fs::path(path).extension() == ".npy") {
    const fs::path file = train::resolve_path(path, options.data_dir, "run.data.path");
    base::with_field("run.data.path", [&] { inspect_npy(file, reading, options, &message); });
    return message;
  }
  const train::DataFiles files = find_files(reading, path, options.data_dir);
  message.set_format(train::token_format_name(files.format));
  message.set_files(static_cast<std::int64_t>(files.files.size()));
  const bool is_text =
      files.format == train::TokenFormat::kText || files.format == train::TokenFormat::kJsonLines;
  if (is_text)
    inspect_text(files, reading, options, &message);
  else
    inspect_tokens(files, reading, options, &message);
  return message;
}

}  // namespace meshloom::control
