// SPDX-License-Identifier: Apache-2.0
// Grapheme clusters: what readers take for one character.
#pragma once

#include <cstddef>
#include <string_view>

namespace meshloom::text {

/// Returns the bytes of the extended grapheme cluster (Unicode Standard Annex 29) that `text`,
/// valid UTF-8 and not empty, begins with.
std::size_t grapheme_length(std::string_view text);

}  // namespace meshloom::text
