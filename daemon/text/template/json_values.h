// SPDX-License-Identifier: Apache-2.0
// JSON as values of templates.
#pragma once

#include <nlohmann/json.hpp>

#include "daemon/text/template/value.h"

namespace meshloom::text::chat {

/// Bytes of a text that are no UTF-8 become U+FFFD.
Value value_of_json(Work& work, const nlohmann::ordered_json& json);

}  // namespace meshloom::text::chat
