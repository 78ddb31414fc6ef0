// SPDX-License-Identifier: Apache-2.0
// KernelRecord: what an emulated device says of the launches of a kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace meshloom::emulator {

/// The launches of one kernel; all but the count is of the one that had the most bytes to move.
struct KernelRecord {
  std::string kernel;  ///< its name with namespaces, template arguments and a return type
  std::uint64_t launches = 0;
  unsigned threads = 0;  ///< of a block
  std::size_t dynamic_shared = 0;
  /// Bytes between the device's memory and its processors (Traffic), and the fewest that do.
  std::uint64_t moved = 0, least = 0;
};

}  // namespace meshloom::emulator
