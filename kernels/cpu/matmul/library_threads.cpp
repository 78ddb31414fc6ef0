// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/library_threads.h"

#include <cblas.h>

#include <algorithm>

#include "kernels/base/error.h"

// Of libgomp, which both libraries link. Declared here since builds whose own loops do not use
// OpenMP (MESHLOOM_OPENMP=OFF) have no omp.h.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int);
}

namespace meshloom::kernels::cpu {

LibraryThreads::LibraryThreads(Threads threads)
    : former_(omp_get_max_threads()), now_(std::max(threads.count, 1)) {
  if (now_ != former_) omp_set_num_threads(now_);
}

LibraryThreads::~LibraryThreads() {
  if (now_ != former_) omp_set_num_threads(former_);
}

void verify_blas() {
  constexpr int kOpenMpBuild = 2;
  const int kind = openblas_get_parallel();
  if (kind != kOpenMpBuild)
    throw FailedPrecondition(fmt::format(
        "OpenBLAS: the build that was loaded has threading kind {} ({}), expected {} (OpenMP): the "
        "library path must lead to the openblas-openmp folder",
        kind, kind == 1 ? "pthread" : "serial", kOpenMpBuild));
}

}  // namespace meshloom::kernels::cpu
