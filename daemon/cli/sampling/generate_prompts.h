// SPDX-License-Identifier: Apache-2.0
// The command line gives the prompts of `meshloom generate`, which are read here.
#pragma once

#include <string>
#include <vector>

#include "v1/generate_service.pb.h"

namespace meshloom::cli {

/// One way of giving prompts is used, the others are empty.
struct PromptOptions {
  std::vector<std::string> texts = {};
  std::vector<std::string> tokens = {};  ///< of each prompt: ids separated by commas
  std::string file = {};                 ///< one prompt of text a line

  bool empty() const { return texts.empty() && tokens.empty() && file.empty(); }
};

/// Returns at least one; without any an empty one, for the model's own beginning. Throws CliError
/// (kUsage) for what is no token id, for a file that cannot be read and, with its line, for a line
/// of it that is empty.
std::vector<v1::Prompt> read_prompts(const PromptOptions& options);

}  // namespace meshloom::cli
