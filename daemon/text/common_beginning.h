// SPDX-License-Identifier: Apache-2.0
// common_beginning: how far two texts are the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace meshloom::text {

/// Returns how many bytes are the same; they may end inside of a character.
inline std::size_t common_beginning(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

}  // namespace meshloom::text
