// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/data_reading.h"

#include <algorithm>

#include "daemon/base/field_error.h"
#include "daemon/base/input_file.h"
#include "daemon/nn/models/model_config.h"
#include "daemon/nn/models/presets.h"
#include "daemon/train/files/hf_byte_tokenizer.h"
#include "daemon/train/files/paths.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizerField = "run.data.tokenizer";
constexpr std::uint64_t kMostModelConfigBytes = std::uint64_t{1} << 20;

/// Of the model whose folder it is; 0 if it is none that is known.
std::int64_t context_of(const fs::path& folder) {
  try {
    const base::InputFile file(folder / "config.json");
    return nn::parse_hf_config(file.read_text(kMostModelConfigBytes)).context_length();
  } catch (const Error&) {
    return 0;
  }
}

void read_preset(const std::string& name, DataReading& reading) {
  const nn::ModelConfig model = nn::preset_config(name);
  if (model.vocab_size != train::kByteVocabulary)
    throw InvalidArgument(
        fmt::format("{}: the preset {} has {} tokens and no tokenizer: name a Hugging Face folder "
                    "below the daemon's --data-dir that has one, or a model of the daemon",
                    kTokenizerField, name, model.vocab_size),
        "TOKENIZER_NEEDED", {{"field", kTokenizerField}, {"preset", name}});
  reading.tokenizer = train::byte_tokenizer();
  reading.context = model.context_length();
  reading.config.mutable_data()->set_tokenizer("bytes");
}

}  // namespace

DataReading open_reading(const v1::TextReading& given, ModelFolders& folders,
                         const fs::path& data_dir, const text::StopCheck& stop) {
  DataReading reading;
  v1::DataConfig& data = *reading.config.mutable_data();
  data.set_tokenizer(given.tokenizer());
  data.set_format(given.format());
  data.set_field(given.field());
  if (given.has_chat()) *data.mutable_chat() = given.chat();
  if (given.has_append_eos()) data.set_append_eos(given.append_eos());
  if (given.has_add_special_tokens()) data.set_add_special_tokens(given.add_special_tokens());
  data.set_skip_lines_without_text(given.skip_lines_without_text());
  const std::string& name = given.tokenizer();
  if (name.empty()) return reading;
  if (name == "auto")
    base::refuse_field(kTokenizerField,
                       "\"auto\" is that of a job's model, and here is no job: name a folder, "
                       "\"models/NAME\", a preset or \"bytes\"");
  if (name == "bytes") {
    reading.tokenizer = train::byte_tokenizer();
    return reading;
  }
  const std::vector<std::string> presets = nn::preset_names();
  const bool is_preset = std::find(presets.begin(), presets.end(), name) != presets.end();
  std::error_code unknown;
  if (is_preset && !fs::exists(train::below_data_folders(name, data_dir), unknown)) {
    read_preset(name, reading);
    return reading;
  }
  reading.hold = folders.hold_models(reading.config);
  reading.folder = folders.tokenizer_folder(reading.config, {});
  reading.tokenizer =
      base::with_field(kTokenizerField, [&] { return text::open_tokenizer(reading.folder, stop); });
  reading.context = context_of(reading.folder);
  return reading;
}

std::optional<train::ChatSetup> resolve_reading(DataReading& reading, const fs::path& data_dir) {
  if (!reading.tokenizer.tokenizer) {
    reading.tokenizer = train::byte_tokenizer();
    reading.config.mutable_data()->set_tokenizer("bytes");
  }
  v1::DataConfig& data = *reading.config.mutable_data();
  const bool is_bytes = data.tokenizer() == "bytes";
  if (!data.has_chat()) {
    if (data.field().empty()) data.set_field("text");
    train::resolve_document_tokens(data, reading.tokenizer, is_bytes, "run.data");
    return std::nullopt;
  }
  train::ChatSetup setup =
      train::chat_setup(data, reading.tokenizer, reading.folder, data_dir, "run.data");
  train::resolve_chat_tokens(data, reading.tokenizer, setup, is_bytes, "run.data");
  if (setup.tells_time)
    setup = train::chat_setup(data, reading.tokenizer, reading.folder, data_dir, "run.data");
  return setup;
}

train::DataFiles find_files(DataReading& reading, const std::string& path,
                            const fs::path& data_dir) {
  v1::RunConfig config = reading.config;
  config.mutable_data()->set_path(path);
  const train::RunFiles files = train::find_run_files(config, data_dir, "run.data");
  train::resolve_chat(*config.mutable_data(), files, "run.data");
  if (config.data().has_chat())
    *reading.config.mutable_data()->mutable_chat() = config.data().chat();
  return files.training;
}

}  // namespace meshloom::control
