// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/data_streams.h"

#include <algorithm>

#include "daemon/base/field_error.h"
#include "daemon/control/jobs/chat_notes.h"
#include "daemon/control/services/data_inspection.h"
#include "daemon/text/token_file.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

std::vector<text::DocumentFile> find_documents(const v1::TokenizeDataRequest& request,
                                               DataReading& reading, const fs::path& data_dir) {
  if (request.paths().empty()) base::refuse_field("paths", "is empty");
  std::vector<text::DocumentFile> documents;
  for (const std::string& path : request.paths()) {
    const train::DataFiles files = find_files(reading, path, data_dir);
    if (files.format != train::TokenFormat::kText && files.format != train::TokenFormat::kJsonLines)
      base::refuse_field("paths", "{} holds tokens already ({})", path,
                         train::token_format_name(files.format));
    for (text::DocumentFile& file : train::documents_of(files, reading.config.data().format()))
      documents.push_back(std::move(file));
  }
  const bool has_json_lines =
      std::any_of(documents.begin(), documents.end(), [](const text::DocumentFile& file) {
        return file.format == text::DocumentFormat::kJsonLines;
      });
  train::check_skips_lines(reading.config.data(), has_json_lines, "run.data");
  return documents;
}

}  // namespace

InspectDataStream::Result InspectDataStream::make_result() {
  InspectionOptions options;
  options.data_dir = world_.data_dir;
  if (request_.has_seq_len()) options.seq_len = request_.seq_len();
  options.threads = world_.threads;
  options.progress = [this](std::uint64_t bytes, std::uint64_t total) {
    part_done(request_.path(), bytes, total);
  };
  return inspect_data(
      request_.path(),
      open_reading(request_.reading(), world_.folders, world_.data_dir, [this] { check_wanted(); }),
      options);
}

TokenizeDataStream::Result TokenizeDataStream::make_result() {
  if (request_.reading().tokenizer().empty())
    base::refuse_field("run.data.tokenizer",
                       "is needed: a Hugging Face folder below the daemon's --data-dir, "
                       "\"models/NAME\", a preset or \"bytes\"");
  DataReading reading =
      open_reading(request_.reading(), world_.folders, world_.data_dir, [this] { check_wanted(); });
  return write_tokens(reading);
}

v1::TokenFileSummary TokenizeDataStream::write_tokens(DataReading& reading) {
  const v1::DataConfig& data = reading.config.data();
  const std::string below = own_data_folder(caller().identity());
  const DataOutputs::Place out =
      world_.outputs.claim({"out", request_.out(), request_.overwrite(), !below.empty(), below});
  const auto documents = find_documents(request_, reading, world_.data_dir);
  const std::optional<train::ChatSetup> chat = resolve_reading(reading, world_.data_dir);
  std::uint64_t total = 0;
  for (const text::DocumentFile& file : documents) total += bytes_of_files({file.path});
  text::TokenFileOptions options;
  options.encode = train::encode_options(data, reading.tokenizer);
  options.encode.threads = world_.threads;
  if (chat) options.encode.chat = chat->reading;
  options.encode.progress = [&](std::uint64_t bytes) {
    part_done(request_.paths(0), bytes, total);
  };
  if (!request_.overwrite()) options.existing = base::Existing::kRefuse;
  const text::TokenizeSummary summary = train::with_text_field("run.data", [&] {
    try {
      return text::write_token_file(documents, *reading.tokenizer.tokenizer, options, out.path);
    } catch (const AlreadyExists&) {
      DataOutputs::refuse_existing("out", out.path);
    }
  });
  spdlog::info("{} has {} tokens of {} documents", out.path.string(), summary.tokens,
               summary.documents);
  v1::TokenFileSummary message;
  message.set_files(summary.files);
  message.set_documents(summary.documents);
  message.set_bytes(static_cast<std::int64_t>(summary.bytes));
  message.set_tokens(summary.tokens);
  message.set_replaced_documents(summary.replaced_documents);
  message.set_skipped_lines(summary.skipped_lines);
  message.set_path(world_.outputs.name_for_jobs(out.path));
  if (chat) *message.mutable_chat() = chat_data(data.chat(), chat->origin, summary);
  if (data.has_document_end()) message.set_document_end(data.document_end());
  return message;
}

}  // namespace meshloom::control
