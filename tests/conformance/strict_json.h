// SPDX-License-Identifier: Apache-2.0
// JSON as cases are written: no duplicate keys, bounded depth.
#pragma once

#include <string>

#include "tests/conformance/object_reader.h"

namespace meshloom::conformance {

/// Throws InvalidArgument ("JSON ...") for text that is not JSON, names a key twice in one object
/// or nests deeper than 64 levels.
Json parse_strict_json(const std::string& text);

}  // namespace meshloom::conformance
