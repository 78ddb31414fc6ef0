// SPDX-License-Identifier: Apache-2.0
// What tests of bounds compare: the time and the memory that were taken.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <ctime>

namespace meshloom::test {

/// Seconds of the processor that this thread has taken: what a shared machine gives to others does
/// not count.
inline double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The most bytes of memory that this process has had so far.
inline std::int64_t most_memory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{1024} * usage.ru_maxrss;
}

}  // namespace meshloom::test
