// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul_table.h"

namespace meshloom::kernels::cpu {

const char* matmul_provider_name(MatmulProvider provider) {
  switch (provider) {
    case MatmulProvider::kOneDnnSgemm: return "oneDNN sgemm";
    case MatmulProvider::kOneDnnMatmul: return "oneDNN matmul";
    case MatmulProvider::kOpenBlas: return "OpenBLAS";
  }
  return "unknown";
}

MatmulProvider choose_matmul_provider(CpuClass, DType dtype, const Gemm&, Threads) {
  if (dtype == DType::kFloat64) return MatmulProvider::kOpenBlas;
  return MatmulProvider::kOneDnnSgemm;
}

}  // namespace meshloom::kernels::cpu
