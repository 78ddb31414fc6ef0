// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul_table.h"

#include "kernels/cpu/few_rows.h"

namespace meshloom::kernels::cpu {
namespace {

// Sums over many rows into a small result, as weight gradients of narrow models: sgemm splits the
// sum over blocks that do not fit the cache, and falls to 0.75 of its rate; the primitive keeps
// 0.95.
bool long_sum(const Gemm& g) {
  constexpr std::int64_t kDepth = 2048;
  constexpr std::int64_t kColumns = 512;
  return g.a.transposed && g.k >= kDepth && g.n <= kColumns && g.m > kColumns && g.alpha == 1.0f;
}

// A short, very wide product with b stored by columns, as a chunk of an output projection: all of b
// is rearranged for few rows, which OpenBLAS does faster.
bool wide_projection(const Gemm& g) {
  constexpr std::int64_t kColumns = 16384;
  constexpr std::int64_t kRows = 512;
  return g.b.transposed && g.n >= kColumns && g.m <= kRows;
}

// What generation multiplies for a token: a few rows by all weights.
bool few_rows(const Gemm& g) {
  constexpr std::int64_t kElements = 1 << 14;  // of b: below, a call costs as much as the product
  return g.m <= kFewRows && !g.a.transposed && g.alpha == 1.0f && g.beta == 0.0f &&
         g.k * g.n >= kElements;
}

}  // namespace

MatmulProvider choose_matmul_provider(CpuClass cpu_class, DType dtype, const Gemm& gemm, Threads) {
  if (dtype == DType::kFloat64) return MatmulProvider::kOpenBlas;
  if (few_rows(gemm) &&
      cpu_class >= (dtype == DType::kBFloat16 ? CpuClass::kAvx512Bf16 : CpuClass::kAvx512))
    return MatmulProvider::kFewRows;
  if (dtype == DType::kBFloat16)
    return cpu_class >= CpuClass::kAvx512Bf16 && gemm.alpha == 1.0f ? MatmulProvider::kOneDnnMatmul
                                                                    : MatmulProvider::kOneDnnSgemm;
  if (cpu_class >= CpuClass::kAvx512 && long_sum(gemm)) return MatmulProvider::kOneDnnMatmul;
  if (cpu_class == CpuClass::kAvx2 && wide_projection(gemm)) return MatmulProvider::kOpenBlas;
  return MatmulProvider::kOneDnnSgemm;
}

}  // namespace meshloom::kernels::cpu
