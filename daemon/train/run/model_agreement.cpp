// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/model_agreement.h"

#include <algorithm>
#include <optional>

#include "daemon/comm/agreement/status_agreement.h"
#include "daemon/train/config/resume_check.h"
#include "daemon/train/files/hf_folder.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

/// Where the run may begin, the first choice first: all of them are of one model.
std::vector<fs::path> places_to_begin(const RunOptions& options) {
  std::vector<fs::path> places;
  const auto add_below = [&](const fs::path& folder, std::optional<std::int64_t> most) {
    const auto entries = list_checkpoints(folder);
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry)
      if (!most || entry->step <= *most) places.push_back(entry->folder);
  };
  if (!options.folders.state.empty()) places.push_back(options.folders.state);
  if (!options.folders.checkpoints.empty()) add_below(options.folders.checkpoints, std::nullopt);
  if (!options.folders.resume_from.empty()) places.push_back(options.folders.resume_from);
  if (options.folders.resume_older)
    add_below(options.folders.resume_from.parent_path(),
              step_of_folder_name(options.folders.resume_from.filename().string()));
  return places;
}

/// Of the first place that has one. A damaged one is told of by whoever loads it.
std::optional<Manifest> find_manifest(const RunOptions& options) {
  for (const fs::path& place : places_to_begin(options)) {
    try {
      return read_manifest(place);
    } catch (const Error&) {
      continue;
    }
  }
  return std::nullopt;
}

/// Of weights that are not needed any more, and may be gone.
bool has_own_head(const fs::path& weights) {
  try {
    return HfFolder::open(weights).has_own_head();
  } catch (const Error&) {
    return false;
  }
}

/// On rank 0: the declared model, whose weights could untie it, as the run is of it.
nn::ModelConfig resolve_tie(const DeclaredConfig& declared, const RunOptions& options,
                            std::vector<std::string>& notes) {
  const std::optional<Manifest> checkpoint = find_manifest(options);
  if (!checkpoint) {
    const HfFolder weights = HfFolder::open(declared.tied_weights);
    for (std::string& note : weights.tie_notes()) notes.push_back(std::move(note));
    nn::ModelConfig model = declared.model;
    model.tie_word_embeddings = !weights.has_own_head();
    return model;
  }
  nn::ModelConfig model = resumed_model(declared, *checkpoint);
  if (model.tie_word_embeddings && has_own_head(declared.tied_weights))
    notes.push_back(fmt::format(
        "the weights in {} have an output head of their own, but the checkpoint was trained with "
        "the embedding as its head: the model stays tied",
        declared.tied_weights.filename().string()));
  return model;
}

}  // namespace

nn::ModelConfig agree_on_model(comm::ProcessGroup& world, const v1::RunConfig& config,
                               const RunOptions& options, base::Disk& disk,
                               std::vector<std::string>& notes) {
  nn::ModelConfig model;
  std::int64_t tied = 0;
  run_agreed(world, [&] {
    const DeclaredConfig declared =
        load_declared_config(config.model(), options.folders.data_dir, options.folders.model, disk);
    model = declared.model;
    if (world.rank() == 0 && !declared.tied_weights.empty())
      model = resolve_tie(declared, options, notes);
    tied = model.tie_word_embeddings ? 1 : 0;
  });
  if (world.size() > 1) world.broadcast(make_view(&tied, DType::kInt64, {1}), 0)->wait_host();
  model.tie_word_embeddings = tied != 0;
  return model;
}

}  // namespace meshloom::train
