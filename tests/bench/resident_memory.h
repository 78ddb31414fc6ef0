// SPDX-License-Identifier: Apache-2.0
// What of this process lies in memory, and its share of that.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "kernels/base/error.h"

namespace meshloom::bench {

struct ResidentMemory {
  std::int64_t rss = 0;  ///< bytes; pages that ranks share count once for each of them
  std::int64_t pss = 0;  ///< bytes; such pages divided among those that map them
};

/// From /proc/self/smaps_rollup (Linux 4.14). Throws Unimplemented where it is not there.
inline ResidentMemory resident_memory() {
  constexpr const char* kFile = "/proc/self/smaps_rollup";
  std::ifstream file(kFile);
  ResidentMemory memory;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Rss:")) memory.rss = std::stoll(line.substr(4)) * 1024;
    if (line.starts_with("Pss:")) memory.pss = std::stoll(line.substr(4)) * 1024;
  }
  if (memory.rss == 0 || memory.pss == 0)
    throw Unimplemented(
        fmt::format("{} tells no Rss and Pss; expected Linux 4.14 or later", kFile));
  return memory;
}

}  // namespace meshloom::bench
