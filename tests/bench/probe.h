// SPDX-License-Identifier: Apache-2.0
// What the machine can do right now: the yardsticks that benchmarks divide by. Clocks on shared
// machines swing, so a probe belongs next to the measurement, in the same run.
#pragma once

#include <cstddef>

#include "kernels/base/parallel_for.h"

namespace meshloom::bench {

/// float32 multiply-adds in registers alone, two operations each, at the machine's widest vectors,
/// on all threads at once.
double fma_flops_per_second(Threads threads, double seconds = 0.2);

/// bfloat16 operations a second in registers alone: tile products where the CPU has AMX, else dot
/// products (AVX-512 BF16); 0 where it has neither.
double bfloat16_flops_per_second(Threads threads, double seconds = 0.2);

enum class CopyKind {
  kPlain,        ///< memcpy
  kNonTemporal,  ///< stores that bypass the caches
};

/// Seconds of one copy of `bytes` by all threads, each its own range. Rate = 2 * bytes / seconds
/// (one read, one write).
double copy_seconds(Threads threads, CopyKind kind, std::byte* dst, const std::byte* src,
                    std::size_t bytes);

/// The best of a few copies of buffers that no cache holds (256 MiB each), in bytes read plus
/// written a second.
double copy_bytes_per_second(Threads threads, CopyKind kind);

/// The best of a few readings of a buffer that no cache holds (256 MiB), in bytes a second: by
/// one, two and four streams a thread. A core has fewer reads than reads and writes in flight, so
/// this is less than a copy's rate on many machines.
double read_bytes_per_second(Threads threads);

}  // namespace meshloom::bench
