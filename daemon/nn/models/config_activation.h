// SPDX-License-Identifier: Apache-2.0
// The activation of a config.json.
#pragma once

#include "daemon/nn/models/json_reader.h"
#include "daemon/nn/models/model_config.h"

namespace meshloom::nn {

/// Throws Unimplemented for an activation that is not offered.
ActivationKind parse_activation(const JsonReader& json, const char* key, const char* fallback);
/// Returns the name as transformers writes it.
const char* activation_name(ActivationKind activation);

}  // namespace meshloom::nn
