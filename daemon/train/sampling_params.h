// SPDX-License-Identifier: Apache-2.0
// How tokens are drawn, as a request or a job says it.
#pragma once

#include <string>

#include "v1/config.pb.h"

namespace meshloom::train {

/// Fills in the defaults and checks the rest. Throws InvalidArgument with the field: `where` and
/// the parameter's name ("run.sample.params.top_p").
void resolve_sampling_params(v1::SamplingParams& params, const std::string& where);

}  // namespace meshloom::train
