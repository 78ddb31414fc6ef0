// SPDX-License-Identifier: Apache-2.0
// SamplingParams of the wire as the model's options.
#pragma once

#include "daemon/nn/generate.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// Fills in the defaults that config.proto names.
inline nn::GenerateOptions make_generate_options(const v1::SamplingParams& params) {
  nn::GenerateOptions options;
  if (params.max_tokens() != 0) options.max_tokens = params.max_tokens();
  if (params.has_temperature()) options.sampling.temperature = params.temperature();
  if (params.has_top_p()) options.sampling.top_p = params.top_p();
  options.sampling.top_k = params.top_k();
  options.sampling.seed = params.seed();
  return options;
}

}  // namespace meshloom::train
