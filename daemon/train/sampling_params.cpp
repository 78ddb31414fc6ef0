// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/sampling_params.h"

#include <cmath>

#include "daemon/train/field_error.h"

namespace meshloom::train {
namespace {

constexpr int kDefaultTokens = 256;

}  // namespace

void resolve_sampling_params(v1::SamplingParams& params, const std::string& where) {
  if (params.max_tokens() == 0) params.set_max_tokens(kDefaultTokens);
  if (params.max_tokens() < 0)
    refuse_field(where + ".max_tokens", "{} is negative", params.max_tokens());
  if (!params.has_temperature()) params.set_temperature(1.0);
  if (!std::isfinite(params.temperature()) || params.temperature() < 0)
    refuse_field(where + ".temperature", "{} is not a number of 0 or more", params.temperature());
  if (!params.has_top_p()) params.set_top_p(1.0);
  if (!(params.top_p() > 0 && params.top_p() <= 1))
    refuse_field(where + ".top_p", "{} is not above 0 and at most 1", params.top_p());
  if (params.top_k() < 0) refuse_field(where + ".top_k", "{} is negative", params.top_k());
}

}  // namespace meshloom::train
