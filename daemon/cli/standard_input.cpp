// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/standard_input.h"

#include <algorithm>
#include <cstdio>

namespace meshloom::cli {

std::string read_standard_input(std::size_t most) {
  std::string text;
  char piece[1 << 16];
  while (text.size() < most) {
    const std::size_t got = std::fread(piece, 1, std::min(sizeof piece, most - text.size()), stdin);
    if (got == 0) break;
    text.append(piece, got);
  }
  return text;
}

}  // namespace meshloom::cli
