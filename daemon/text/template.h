// SPDX-License-Identifier: Apache-2.0
// Template: the special tokens around the tokens of one text.
#pragma once

#include <vector>

#include "daemon/text/json_part.h"
#include "daemon/text/vocabulary.h"

namespace meshloom::text {

struct Template {
  std::vector<TokenId> before = {}, after = {};
};

/// The "post_processor" of a tokenizer.json, as far as it concerns single texts. Throws
/// Unimplemented naming a kind that is not known.
Template read_template(const JsonPart& part);

}  // namespace meshloom::text
