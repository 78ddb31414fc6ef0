// SPDX-License-Identifier: Apache-2.0
// The architectures that a config.json may have.
#pragma once

#include <string>
#include <vector>

namespace meshloom::nn {

/// As `model_type` spells them: "gpt2", "llama", "bert".
std::vector<std::string> architecture_names();

}  // namespace meshloom::nn
