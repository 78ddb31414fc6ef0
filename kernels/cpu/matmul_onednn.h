// SPDX-License-Identifier: Apache-2.0
// Matrix products by oneDNN (2.6 and 3.x).
#pragma once

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/gemm.h"

namespace meshloom::kernels::cpu {

/// oneDNN uses no instructions above this class from now on. Only before its first use in the
/// process; later calls change nothing.
void lower_onednn(CpuClass);

/// float32 by oneDNN's sgemm. Threads as LibraryThreads says.
void onednn_sgemm(const Gemm&);

}  // namespace meshloom::kernels::cpu
