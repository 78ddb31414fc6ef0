// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/model_source.h"

#include <optional>
#include <utility>

#include "daemon/base/field_error.h"
#include "daemon/base/stand_in.h"
#include "daemon/nn/models/architecture_names.h"
#include "daemon/nn/models/presets.h"
#include "daemon/text/tokenizer_folder.h"
#include "daemon/train/files/hf_folder.h"
#include "daemon/train/files/paths.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{1} << 20;

struct FoundConfig {
  nn::ModelConfig config;
  bool headless = false;  ///< of the files beside it
};

FoundConfig read_model_config(const std::filesystem::path& file, base::Disk& disk) {
  const std::string text = disk.open(file).read_text(kMaxConfigBytes);
  base::refuse_stand_in(text, file.filename().string());
  return {nn::parse_hf_config(text), nn::is_headless(text)};
}

void check_head(const v1::ModelSource& source, bool headless) {
  if (headless && !source.fresh_head())
    base::refuse_field("run.model.fresh_head",
                       "the model has no output head (its config.json is of BertModel or such a "
                       "class): a job or a run with fresh_head: true trains it with a new one, "
                       "made from run.training.seed");
  if (!headless && source.fresh_head())
    base::refuse_field("run.model.fresh_head",
                       "is true, but the model has an output head of its own: it is for a "
                       "config.json of a class without one (BertModel)");
}

}  // namespace

DeclaredConfig load_declared_config(const v1::ModelSource& source,
                                    const std::filesystem::path& data_dir,
                                    const std::filesystem::path& model_folder, base::Disk& disk) {
  const int given = (source.preset().empty() ? 0 : 1) + (source.config().empty() ? 0 : 1) +
                    (source.hf_folder().empty() ? 0 : 1) + (source.name().empty() ? 0 : 1);
  if (given != 1)
    base::refuse_field("run.model",
                       "give exactly one of preset, config, hf_folder and name (got {})", given);
  FoundConfig found;
  if (!source.preset().empty()) {
    found.config =
        base::with_field("run.model.preset", [&] { return nn::preset_config(source.preset()); });
  } else if (!source.config().empty()) {
    const auto path = resolve_path(source.config(), data_dir, "run.model.config", disk);
    // A tokenizer beside it goes along; what else lies there is no part of the model.
    base::with_field("run.model.config", [&] {
      for (const auto& file : text::carried_files(path.parent_path(), {}, disk))
        check_inside(file, data_dir, disk);
    });
    found = base::with_field("run.model.config", [&] { return read_model_config(path, disk); });
  } else if (!source.name().empty()) {
    if (model_folder.empty())
      base::refuse_field("run.model.name", "\"{}\" is a model of a daemon, which is not asked here",
                         source.name());
    found = base::with_field("run.model.name",
                             [&] { return read_model_config(model_folder / "config.json", disk); });
  } else {
    const auto folder = resolve_path(source.hf_folder(), data_dir, "run.model.hf_folder", disk);
    if (!disk.has(folder / "config.json"))
      throw NotFound(fmt::format("run.model.hf_folder: {} has no config.json", source.hf_folder()),
                     "NOT_FOUND", {{"field", "run.model.hf_folder"}});
    base::with_field("run.model.hf_folder", [&] { check_links(folder, data_dir, disk); });
    found = base::with_field("run.model.hf_folder",
                             [&] { return read_model_config(folder / "config.json", disk); });
  }
  check_head(source, found.headless);
  nn::ModelConfig& config = found.config;
  if (source.has_dropout()) {
    if (!(source.dropout() >= 0.0 && source.dropout() < 1.0))
      base::refuse_field("run.model.dropout", "must be in [0, 1), got {}", source.dropout());
    config.embedding_dropout = config.attention_dropout = config.residual_dropout =
        source.dropout();
  }
  const bool tied = config.tie_word_embeddings;
  return {std::move(config),
          tied ? weights_folder(source, data_dir, model_folder, disk) : std::filesystem::path()};
}

nn::ModelConfig load_model_config(const v1::ModelSource& source,
                                  const std::filesystem::path& data_dir,
                                  const std::filesystem::path& model_folder, base::Disk& disk,
                                  std::vector<std::string>* notes) {
  const DeclaredConfig declared = load_declared_config(source, data_dir, model_folder, disk);
  if (declared.tied_weights.empty()) return declared.model;
  std::optional<HfFolder> weights;
  try {
    weights.emplace(HfFolder::open(declared.tied_weights, disk));
  } catch (const Error&) {
    return declared.model;
  }
  nn::ModelConfig model = declared.model;
  model.tie_word_embeddings = !weights->has_own_head();
  if (notes)
    for (std::string& note : weights->tie_notes()) notes->push_back(std::move(note));
  return model;
}

void check_source_weights(const v1::ModelSource& source, const std::filesystem::path& data_dir,
                          const std::filesystem::path& model_folder) {
  const std::filesystem::path folder = weights_folder(source, data_dir, model_folder);
  if (folder.empty()) return;
  base::with_field(source.name().empty() ? "run.model.hf_folder" : "run.model.name",
                   [&] { check_hf_folder(folder); });
}

std::vector<std::string> check_config_keys(const v1::ModelSource& source,
                                           const nn::ModelConfig& config,
                                           const std::filesystem::path& data_dir,
                                           const std::filesystem::path& model_folder,
                                           base::Disk& disk) {
  if (weights_folder(source, data_dir, model_folder, disk).empty())
    base::with_field(source.config().empty() ? "run.model.name" : "run.model.config",
                     [&] { nn::refuse_unread_keys(config); });
  return nn::config_notes(config);
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
