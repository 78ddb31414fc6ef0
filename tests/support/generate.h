// SPDX-License-Identifier: Apache-2.0
// A whole sample of a model at once.
#pragma once

#include <functional>
#include <span>

#include "daemon/nn/generate.h"

namespace meshloom::testing {

/// Draws to the end, handing each token to on_token, which returns false to stop. Returns how many
/// were drawn.
inline std::int64_t generate(nn::Model& model, std::span<const std::int64_t> prompt,
                             const nn::GenerateOptions& options,
                             const std::function<bool(std::int64_t)>& on_token) {
  nn::Generation generation(model, {{{prompt.begin(), prompt.end()}, options}});
  std::int64_t drawn = 0;
  while (!generation.done())
    for (const nn::GeneratedToken& token : generation.advance()) {
      ++drawn;
      if (!on_token(token.id)) return drawn;
    }
  return drawn;
}

}  // namespace meshloom::testing
