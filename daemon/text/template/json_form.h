// SPDX-License-Identifier: Apache-2.0
// Values as JSON, by Python's json.dumps, which is what the filter tojson of transformers is.
#pragma once

#include <optional>
#include <string>

#include "daemon/text/template/value.h"

namespace meshloom::text::chat {

struct JsonOptions {
  bool ensure_ascii = false;
  /// A level is indented by this text; nothing: all is on one line.
  std::optional<std::string> indent;
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
};

/// Throws for what JSON has not: undefined values, ranges, macros.
std::string to_json(Work& work, const Value& value, const JsonOptions& options);

}  // namespace meshloom::text::chat
