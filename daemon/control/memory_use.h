// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace meshloom::control {

struct MemoryUse {
  std::int64_t resident = 0;  ///< bytes
  std::int64_t peak = 0;
};

/// Of this process, from /proc; zeros where that is not there.
MemoryUse process_memory();

}  // namespace meshloom::control
