// SPDX-License-Identifier: Apache-2.0
// Bytes of the golden files, which are JSON.
#pragma once

#include <cstddef>
#include <string>

namespace meshloom::text {

inline std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

}  // namespace meshloom::text
