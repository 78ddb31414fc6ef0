// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/model_source.h"

#include "daemon/base/field_error.h"
#include "daemon/base/input_file.h"
#include "daemon/nn/models/presets.h"
#include "daemon/text/tokenizer_folder.h"
#include "daemon/train/checkpoint/hf_folder.h"
#include "daemon/train/paths.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{1} << 20;

nn::ModelConfig read_model_config(const std::filesystem::path& file, base::Disk& disk) {
  return nn::parse_hf_config(disk.open(file).read_text(kMaxConfigBytes));
}

}  // namespace

nn::ModelConfig load_model_config(const v1::ModelSource& source,
                                  const std::filesystem::path& data_dir,
                                  const std::filesystem::path& model_folder, base::Disk& disk) {
  const int given = (source.preset().empty() ? 0 : 1) + (source.config().empty() ? 0 : 1) +
                    (source.hf_folder().empty() ? 0 : 1) + (source.name().empty() ? 0 : 1);
  if (given != 1)
    base::refuse_field("run.model",
                       "give exactly one of preset, config, hf_folder and name (got {})", given);
  nn::ModelConfig config;
  if (!source.preset().empty()) {
    config =
        base::with_field("run.model.preset", [&] { return nn::preset_config(source.preset()); });
  } else if (!source.config().empty()) {
    const auto path = resolve_path(source.config(), data_dir, "run.model.config", disk);
    // A tokenizer beside it goes along; what else lies there is no part of the model.
    base::with_field("run.model.config", [&] {
      for (const auto& file : text::carried_files(path.parent_path(), {}, disk))
        check_inside(file, data_dir, disk);
    });
    config = base::with_field("run.model.config", [&] { return read_model_config(path, disk); });
  } else if (!source.name().empty()) {
    if (model_folder.empty())
      base::refuse_field("run.model.name", "\"{}\" is a model of a daemon, which is not asked here",
                         source.name());
    config = base::with_field(
        "run.model.name", [&] { return read_model_config(model_folder / "config.json", disk); });
  } else {
    const auto folder = resolve_path(source.hf_folder(), data_dir, "run.model.hf_folder", disk);
    if (!disk.has(folder / "config.json"))
      throw NotFound(fmt::format("run.model.hf_folder: {} has no config.json", source.hf_folder()),
                     "NOT_FOUND", {{"field", "run.model.hf_folder"}});
    base::with_field("run.model.hf_folder", [&] { check_links(folder, data_dir, disk); });
    config = base::with_field("run.model.hf_folder",
                              [&] { return read_model_config(folder / "config.json", disk); });
  }
  if (source.has_dropout()) {
    if (!(source.dropout() >= 0.0 && source.dropout() < 1.0))
      base::refuse_field("run.model.dropout", "must be in [0, 1), got {}", source.dropout());
    config.embedding_dropout = config.attention_dropout = config.residual_dropout =
        source.dropout();
  }
  return config;
}

std::filesystem::path weights_folder(const v1::ModelSource& source,
                                     const std::filesystem::path& data_dir,
                                     const std::filesystem::path& model_folder, base::Disk& disk) {
  if (!source.hf_folder().empty())
    return resolve_path(source.hf_folder(), data_dir, "run.model.hf_folder", disk);
  if (!source.name().empty() && has_hf_weights(model_folder, disk)) return model_folder;
  return {};
}

std::filesystem::path source_folder(const v1::ModelSource& source,
                                    const std::filesystem::path& data_dir,
                                    const std::filesystem::path& model_folder, base::Disk& disk) {
  if (!source.config().empty())
    return resolve_path(source.config(), data_dir, "run.model.config", disk).parent_path();
  if (!source.hf_folder().empty())
    return resolve_path(source.hf_folder(), data_dir, "run.model.hf_folder", disk);
  return source.name().empty() ? std::filesystem::path() : model_folder;
}

}  // namespace meshloom::train
