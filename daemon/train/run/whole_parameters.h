// SPDX-License-Identifier: Apache-2.0
// Whole parameters out of and into a sharded model.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "daemon/train/run/model_state.h"
#include "v1/step.pb.h"

namespace meshloom::train {

/// Returns the float32 values of parameters by name, on rank 0; nothing on the others. Every rank
/// of the world calls it. Throws NotFound (field "names[i]") naming one that there is not.
std::vector<v1::ParameterValue> whole_parameters(ModelState& state,
                                                 const std::vector<std::string>& names);

/// Replaces parameters; moments stay. Every rank calls it with the same values; no collectives.
/// `before_write` is called once all is checked. Throws, before that, NotFound or InvalidArgument
/// with the field
/// ("parameters[2].data") for a name that there is not or that comes twice, another dtype, shape or
/// size, and a value that is not finite.
void set_whole_parameters(ModelState& state, const std::vector<v1::ParameterValue>& values,
                          const std::function<void()>& before_write);

}  // namespace meshloom::train
