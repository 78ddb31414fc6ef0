// SPDX-License-Identifier: Apache-2.0
// The kinds of Transformer that there are.
#pragma once

namespace meshloom::planner {

enum class Architecture { kGpt2, kLlama, kBert };

}  // namespace meshloom::planner
