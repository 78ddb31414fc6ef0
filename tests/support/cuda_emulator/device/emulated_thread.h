// SPDX-License-Identifier: Apache-2.0
// Where a kernel finds which thread it is. Each thread of a block is a fiber with a stack of its
// own.
#pragma once

#include <vector_types.h>

#include <cstdint>
#include <source_location>

namespace meshloom::emulator {

/// A place in a kernel, for what the emulator refuses there.
using Site = std::source_location;

/// Lies at the low end of the fiber's stack, which is aligned to its size: finding it costs a mask.
struct ThreadContext {
  uint3 thread_index;
  uint3 block_index;
  dim3 block_size;
  dim3 grid_size;
};

inline constexpr std::uintptr_t kStackBytes = std::uintptr_t{256} << 10;

/// The context of the thread that runs. For kernels alone.
inline __attribute__((always_inline)) const ThreadContext* this_thread() {
  return reinterpret_cast<const ThreadContext*>(
      reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) & ~(kStackBytes - 1));
}

}  // namespace meshloom::emulator

inline constexpr int warpSize = 32;
