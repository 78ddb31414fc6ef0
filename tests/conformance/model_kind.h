// SPDX-License-Identifier: Apache-2.0
// Kind `model`: a whole model from its Hugging Face folder, on a mesh.
#pragma once

#include "tests/conformance/case.h"

namespace meshloom::conformance {

const Kind& model_kind();

}  // namespace meshloom::conformance
