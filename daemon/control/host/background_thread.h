// SPDX-License-Identifier: Apache-2.0
// Threads that work beside training give way to it.
#pragma once

#include <sys/resource.h>

namespace meshloom::control {

/// Lowers the priority of the calling thread: on Linux that of a thread is its own.
inline void give_way_to_training() {
  constexpr int kNice = 10;
  ::setpriority(PRIO_PROCESS, 0, kNice);
}

}  // namespace meshloom::control
