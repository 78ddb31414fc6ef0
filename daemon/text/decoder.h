// SPDX-License-Identifier: Apache-2.0
// Decoders: what makes the texts of tokens one text again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "daemon/text/json_part.h"

namespace meshloom::text {

/// Changes a list of texts; what is left is put together. Texts may be no valid UTF-8 on the way.
using Decoder = std::function<void(std::vector<std::string>& texts, Budget& budget)>;

/// Reads the "decoder" of a tokenizer.json. Throws Unimplemented naming a kind that is not known,
/// ResourceExhausted for more than kMostSteps of them.
Decoder read_decoder(const JsonPart& part);

}  // namespace meshloom::text
