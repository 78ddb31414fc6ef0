// SPDX-License-Identifier: Apache-2.0
// How `meshloom generate` and `meshloom run sample` are told what to continue and how to draw.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>

#include "daemon/cli/generate_prompts.h"
#include "v1/config.pb.h"

namespace meshloom::cli {

struct SamplingOptions {
  PromptOptions prompts;
  int samples = 1;
  std::optional<double> temperature, top_p;
  int max_tokens = 0;
  int top_k = 0;
  std::uint64_t seed = 0;

  v1::SamplingParams params() const;
};

/// The options fill `options`, which outlives the parser.
void add_sampling_options(CLI::App& command, SamplingOptions& options);

}  // namespace meshloom::cli
