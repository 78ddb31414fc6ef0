// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/model_source.h"

#include "daemon/base/field_error.h"
#include "daemon/base/input_file.h"
#include "daemon/nn/models/presets.h"
#include "daemon/train/paths.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{1} << 20;

nn::ModelConfig read_model_config(const std::filesystem::path& file) {
  return nn::parse_hf_config(base::InputFile(file).read_text(kMaxConfigBytes));
}

void replace_dropout(nn::ModelConfig& config, const v1::ModelSource& source) {
  if (source.has_dropout()) {
    if (!(source.dropout() >= 0.0 && source.dropout() < 1.0))
      base::refuse_field("run.model.dropout", "must be in [0, 1), got {}", source.dropout());
    config.embedding_dropout = config.attention_dropout = config.residual_dropout =
        source.dropout();
  }
}

int sources_given(const v1::ModelSource& source) {
  return (source.preset().empty() ? 0 : 1) + (source.config().empty() ? 0 : 1) +
         (source.hf_folder().empty() ? 0 : 1);
}

}  // namespace

nn::ModelConfig load_model_config(const v1::ModelSource& source,
                                  const std::filesystem::path& data_dir) {
  const int given = sources_given(source);
  if (given != 1)
    base::refuse_field("run.model", "give exactly one of preset, config and hf_folder (got {})",
                       given);
  nn::ModelConfig config;
  if (!source.preset().empty()) {
    config =
        base::with_field("run.model.preset", [&] { return nn::preset_config(source.preset()); });
  } else if (!source.config().empty()) {
    const auto path = resolve_path(source.config(), data_dir, "run.model.config");
    config = base::with_field("run.model.config", [&] { return read_model_config(path); });
  } else {
    const auto folder = resolve_path(source.hf_folder(), data_dir, "run.model.hf_folder");
    if (!std::filesystem::exists(folder / "config.json"))
      throw NotFound(fmt::format("run.model.hf_folder: {} has no config.json", source.hf_folder()),
                     "NOT_FOUND", {{"field", "run.model.hf_folder"}});
    config = base::with_field("run.model.hf_folder",
                              [&] { return read_model_config(folder / "config.json"); });
  }
  replace_dropout(config, source);
  return config;
}

nn::ModelConfig load_folder_config(const v1::ModelSource& source,
                                   const std::filesystem::path& folder) {
  if (const int given = sources_given(source); given != 0)
    base::refuse_field("run.model",
                       "the model's folder is given apart: leave out preset, config and hf_folder "
                       "(got {})",
                       given);
  const std::filesystem::path file = folder / "config.json";
  if (!std::filesystem::exists(file))
    throw NotFound(fmt::format("{} has no config.json", folder.string()), "NOT_FOUND",
                   {{"path", folder.string()}});
  nn::ModelConfig config = read_model_config(file);
  replace_dropout(config, source);
  return config;
}

}  // namespace meshloom::train
