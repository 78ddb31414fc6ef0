// SPDX-License-Identifier: Apache-2.0
// Patterns over dotted names, matched component by component.
#pragma once

#include <string_view>

namespace meshloom::train {

/// True where `pattern` has as many dot-separated components as `name` and each is equal or "*".
/// "transformer.h.*.ln_1.weight" matches every layer's.
bool matches_pattern(std::string_view pattern, std::string_view name);

}  // namespace meshloom::train
