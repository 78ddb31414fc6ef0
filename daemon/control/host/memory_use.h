// SPDX-License-Identifier: Apache-2.0
// Memory of this process as the kernel counts it.
#pragma once

#include <cstdint>

namespace meshloom::control {

struct MemoryUse {
  std::int64_t resident = 0;  ///< bytes
  std::int64_t peak = 0;      ///< bytes, the most that were resident
};

/// Of this process, from /proc; zeros if that is not there.
MemoryUse process_memory();

}  // namespace meshloom::control
