// SPDX-License-Identifier: Apache-2.0
// When to write past the caches.
#pragma once

#include <hwy/cache_control.h>

#include <cstddef>

namespace meshloom::kernels::cpu {

/// Outputs of at least this size are written with non-temporal stores. Below, the next op finds
/// part of the output in a cache, and such stores lose.
inline constexpr std::size_t kStreamingBytes = std::size_t{32} << 20;

/// Makes a thread's non-temporal stores visible before it reports its part as done. Once per part:
/// it waits for memory.
inline void finish_streaming(bool stream) {
  if (stream) hwy::FlushStream();
}

}  // namespace meshloom::kernels::cpu
