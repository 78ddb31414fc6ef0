// SPDX-License-Identifier: Apache-2.0
// How much memory this process takes.
#pragma once

#include <cstdint>

namespace meshloom::control {

struct MemoryUse {
  std::int64_t resident = 0;  ///< bytes
  std::int64_t peak = 0;      ///< bytes, the most that were resident
};

/// Returns what this process uses as the kernel counts it in /proc; zeros if that is not there.
MemoryUse process_memory();

/// From here on the peak counts what is resident now and later. Where the kernel does not let it,
/// the peak is that of the process.
void begin_peak_memory();

/// Gives pages that were allocated and are free to the system, which malloc would keep for later.
/// Whoever allocates meanwhile may wait, about 0.2 s for 1 GiB that is free.
void give_back_free_memory();

}  // namespace meshloom::control
