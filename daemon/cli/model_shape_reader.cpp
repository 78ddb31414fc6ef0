// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/model_shape_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "daemon/base/nearest_name.h"
#include "daemon/cli/exit_code.h"
#include "daemon/nn/models/presets.h"
#include "daemon/plan/model_shape.h"
#include "kernels/base/error.h"

namespace meshloom::cli {
namespace {

namespace fs = std::filesystem;

std::string config_text(const std::string& model) {
  const fs::path path = fs::is_directory(model) ? fs::path(model) / "config.json" : fs::path(model);
  if (fs::exists(path)) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file) throw IoError(fmt::format("cannot read {}", path.string()));
    return text.str();
  }
  const std::vector<std::string> names = nn::preset_names();
  if (std::find(names.begin(), names.end(), model) != names.end()) return nn::preset_text(model);
  const std::string nearest = base::nearest_name(model, names);
  throw NotFound(fmt::format("is neither a preset nor a file that is here{} (presets: {})",
                             nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest),
                             fmt::join(names, ", ")));
}

}  // namespace

planner::ModelShape read_model_shape(const std::string& model) {
  try {
    return plan::make_model_shape(nn::parse_hf_config(config_text(model)));
  } catch (const Error& error) {
    throw CliError(kUsage, fmt::format("--model {}: {}", model, error.what()));
  }
}

}  // namespace meshloom::cli
