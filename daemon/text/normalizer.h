// SPDX-License-Identifier: Apache-2.0
// Normalizers: what changes the whole text before it is split.
#pragma once

#include <functional>
#include <string>

#include "daemon/text/json_part.h"

namespace meshloom::text {

struct NormalText {
  std::string text;   ///< valid UTF-8
  bool first = true;  ///< begins where the text that was to be encoded begins: nothing was removed
};

/// Changes a text that is not empty. May be used by several threads at once, each with a budget.
using Normalizer = std::function<void(NormalText& text, Budget& budget)>;

/// Reads the "normalizer" of a tokenizer.json. Throws Unimplemented naming a kind that is not
/// known, ResourceExhausted for more than kMostSteps of them.
Normalizer read_normalizer(const JsonPart& part);

}  // namespace meshloom::text
