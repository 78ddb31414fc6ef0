// SPDX-License-Identifier: Apache-2.0
// SampleStart: what a sequence of a sample begins with.
#pragma once

#include <cstdint>
#include <vector>

#include "v1/config.pb.h"
#include "v1/step.pb.h"

namespace meshloom::train {

/// A sequence of a sample begins with this. The prompt is one that the model can continue
/// (prompt_tokens).
struct SampleStart {
  std::vector<std::int64_t> prompt;
  v1::SamplingParams params;
  /// Tokens at the end of the prompt that another sample of the same seed has drawn.
  std::uint64_t drawn_before = 0;
  bool log_probs = false;                    ///< its tokens tell theirs
  std::vector<std::int64_t> turn_ends = {};  ///< of an answer in a conversation (ChatPrompt)
  // These end the sequence, as set_ends makes them.
  v1::SampleStop stop = {};                   ///< strings for models of 256 bytes alone
  std::vector<std::int64_t> end_tokens = {};  ///< beside those of the model's config
};

}  // namespace meshloom::train
