// SPDX-License-Identifier: Apache-2.0
// Matrix products by oneDNN (2.6 and 3.x).
#pragma once

#include <cstddef>

#include "kernels/base/parallel_for.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/matmul/gemm.h"

namespace meshloom::kernels::cpu {

/// Lets oneDNN use no instructions above this class from now on. Only before its first use in the
/// process; later calls change nothing.
void lower_onednn(CpuClass);

/// Multiplies float32 by oneDNN's sgemm. Threads as LibraryThreads says.
void onednn_sgemm(const Gemm&);

/// A oneDNN matmul primitive is made for these types, besides its sizes, layouts and beta. alpha is
/// 1.
struct OneDnnTypes {
  DType operands = DType::kFloat32;  ///< of a, b and bias
  DType y = DType::kFloat32;
  bool with_bias = false;  ///< adds bias[n]
};

/// Returns the bytes of scratch memory that the primitive takes. Makes it where the cache does not
/// hold it yet (some 100 us; later calls of the same shape take it from the cache).
std::size_t onednn_matmul_scratch_bytes(const Gemm&, const OneDnnTypes&, Threads);

/// y = a b + bias + beta * y by that primitive, with `scratch` of at least that many bytes, aligned
/// to 64. `bias` has dense elements, or is null without bias.
void onednn_matmul(const Gemm&, const OneDnnTypes&, const void* bias, Threads, std::byte* scratch);

}  // namespace meshloom::kernels::cpu
