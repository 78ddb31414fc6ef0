// SPDX-License-Identifier: Apache-2.0
// SamplingOptions tell `meshloom generate` and `meshloom run sample` what to continue and how to
// draw.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/cli/sampling/generate_prompts.h"
#include "v1/config.pb.h"
#include "v1/step.pb.h"

namespace meshloom::cli {

struct SamplingOptions {
  PromptOptions prompts;
  int samples = 1;
  std::optional<double> temperature, top_p;
  std::optional<int> max_tokens, top_k;
  std::uint64_t seed = 0;  ///< another at each start of the program, unless it is given
  bool seed_is_given = false;
  bool past_context = false;
  std::vector<std::int64_t> stop_tokens;
  std::vector<std::string> stop_strings;
  bool ignore_eos = false;

  v1::SamplingParams params() const;
  v1::SampleStop stop() const;
};

/// Says on standard error which seed draws the same again, if it is another one at each call.
void tell_seed(const SamplingOptions& options);

/// Adds the options, which fill `options`, which outlives the parser.
void add_sampling_options(CLI::App& command, SamplingOptions& options);

}  // namespace meshloom::cli
