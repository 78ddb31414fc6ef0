// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/plans/model_config_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "daemon/base/nearest_name.h"
#include "daemon/cli/exit_code.h"
#include "daemon/nn/models/presets.h"
#include "kernels/base/error.h"

namespace meshloom::cli {
namespace {

namespace fs = std::filesystem;

fs::path config_path(const std::string& model) {
  return fs::is_directory(model) ? fs::path(model) / "config.json" : fs::path(model);
}

/// Whether there are weights beside the file, whose shapes speak.
bool has_weights(const fs::path& config) {
  const fs::path folder = config.parent_path();
  return fs::exists(folder / "model.safetensors") ||
         fs::exists(folder / "model.safetensors.index.json");
}

std::string config_text(const std::string& model) {
  const fs::path path = config_path(model);
  if (fs::exists(path)) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file) throw IoError(fmt::format("cannot read {}", path.string()));
    return text.str();
  }
  const std::vector<std::string> names = nn::preset_names();
  if (std::find(names.begin(), names.end(), model) != names.end()) return nn::preset_text(model);
  throw NotFound(fmt::format("is neither a preset nor a file that is here{} (presets: {})",
                             base::nearest_hint(model, names), fmt::join(names, ", ")));
}

}  // namespace

nn::ModelConfig read_model_config(const std::string& model) {
  try {
    const nn::ModelConfig config = nn::parse_hf_config(config_text(model));
    if (!has_weights(config_path(model))) nn::refuse_unread_keys(config);
    for (const std::string& note : nn::config_notes(config))
      fmt::print(stderr, "note: --model {}: {}\n", model, note);
    return config;
  } catch (const Error& error) {
    throw CliError(kUsage, fmt::format("--model {}: {}", model, error.what()));
  }
}

}  // namespace meshloom::cli
