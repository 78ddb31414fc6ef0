// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/reference_text.h"

#include <string_view>

#include "daemon/train/config/resolve.h"
#include "daemon/train/data/chat_data.h"

namespace meshloom::train {
namespace {

constexpr std::string_view kJobField = "run.data";

std::string in_terms(std::string text) {
  const std::string_view own = kReferenceField;
  for (auto at = text.find(kJobField); at != std::string::npos;
       at = text.find(kJobField, at + own.size()))
    text.replace(at, kJobField.size(), own);
  return text;
}

}  // namespace

bool resolve_reference_text(v1::DataConfig& data, const nn::ModelConfig& model,
                            const std::filesystem::path& tokenizer,
                            const std::filesystem::path& data_dir) {
  v1::RunConfig config;
  *config.mutable_data() = data;
  const RunFiles files = find_run_files(config, data_dir, kReferenceField);
  resolve_chat(*config.mutable_data(), files, kReferenceField);
  resolve_data(*config.mutable_data(), model, kReferenceField);
  text::TokenizerCache opened;
  if (resolve_text(*config.mutable_data(), model.vocab_size, tokenizer, opened, files,
                   kReferenceField)
          .empty())
    return false;
  data = config.data();
  return true;
}

Error in_reference_terms(const Error& error) {
  Error::Metadata metadata = error.metadata();
  if (const auto field = metadata.find("field"); field != metadata.end())
    field->second = in_terms(field->second);
  return {error.kind(), error.reason(), in_terms(error.what()), std::move(metadata)};
}

}  // namespace meshloom::train
