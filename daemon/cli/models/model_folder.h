// SPDX-License-Identifier: Apache-2.0
// ModelFolder tells what of a Hugging Face folder on this machine goes to the daemon.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace meshloom::cli {

struct ModelFolder {
  /// Config, tokenizer and the index of weights; they come first, so that headers are checked
  /// against them.
  std::vector<std::filesystem::path> small;
  std::vector<std::filesystem::path> weights;  ///< safetensors; none: trained from scratch
  std::vector<std::string> left_out;           ///< names of other files that look like weights
};

/// Finds in a folder with a config.json the files that models are made of, by their names: those
/// are model.safetensors, else the files that model.safetensors.index.json names. A link is
/// followed inside the folder, and inside the folder "models--NAME" of Hugging Face's cache that it
/// lies in. Throws CliError (kUsage) for what is no such folder, a link that leads out of it, an
/// index that names other files or one that is not there, and a file that is none.
ModelFolder model_folder(const std::filesystem::path& folder);

}  // namespace meshloom::cli
