// SPDX-License-Identifier: Apache-2.0
// How many threads oneDNN and OpenBLAS use: the one place that tells them.
#pragma once

#include "kernels/base/parallel_for.h"

namespace meshloom::kernels::cpu {

/// While it lives, library calls of this thread use threads.count threads; then the former number
/// again. Both libraries read OpenMP's per-thread setting, so other threads of the process are not
/// affected.
class LibraryThreads {
 public:
  explicit LibraryThreads(Threads threads);
  ~LibraryThreads();
  LibraryThreads(const LibraryThreads&) = delete;
  LibraryThreads& operator=(const LibraryThreads&) = delete;

 private:
  int former_;
  int now_;
};

/// Throws FailedPrecondition unless the OpenBLAS that was loaded is the OpenMP build: the pthread
/// build's own pool fights OpenMP's for the cores (a third slower). Call once at start.
void verify_blas();

}  // namespace meshloom::kernels::cpu
