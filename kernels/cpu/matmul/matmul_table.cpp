// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/matmul_table.h"

#include "kernels/cpu/matmul/few_rows.h"

namespace meshloom::kernels::cpu {
namespace {

// Below so many elements of b a call of an own kernel costs as much as the product. It says nothing
// of rows of a, so that those of a part of them go the same way as those of the whole.
bool worth_packing(const Gemm& g) {
  constexpr std::int64_t kElements = 1 << 14;
  return g.alpha == 1.0f && g.k * g.n >= kElements;
}

// What generation multiplies for a token: a few rows by all weights.
bool few_rows(const Gemm& g) {
  return g.m <= kMostFewRows && !g.a.transposed && g.beta == 0.0f && worth_packing(g);
}

// A chunk of an output projection with its weights [vocabulary, channels]: libraries take memory
// for all of b.
bool wide_columns(const Gemm& g) {
  constexpr std::int64_t kColumns = 16384;
  return g.b.transposed && g.n >= kColumns;
}

MatmulProvider choose_bfloat16(CpuClass cpu_class, const Gemm& gemm) {
  if (cpu_class < CpuClass::kAvx512Bf16) return MatmulProvider::kOneDnnSgemm;
  if (few_rows(gemm)) return MatmulProvider::kFewRows;
  if (gemm.alpha != 1.0f) return MatmulProvider::kOneDnnSgemm;
  // The primitives reach 0.1 of what tile registers do, and a row's bits depend on the rows
  // beside it.
  if (cpu_class == CpuClass::kAmx) return MatmulProvider::kPacked;
  // Weight gradients, of which the primitives reach 0.5 to 0.75 of the dot products' rate, and sums
  // over many rows of b (0.8).
  constexpr std::int64_t kDepth = 2048;
  const bool packed =
      gemm.a.transposed || wide_columns(gemm) || (!gemm.b.transposed && gemm.k >= kDepth);
  return packed && worth_packing(gemm) ? MatmulProvider::kPacked : MatmulProvider::kOneDnnMatmul;
}

MatmulProvider choose_float32(CpuClass cpu_class, const Gemm& gemm, bool batch_invariant) {
  // sgemm reads b once for each of such rows. Other products of few rows are sgemm's here: what
  // training multiplies stays with the libraries.
  if (cpu_class == CpuClass::kAvx2 && batch_invariant && few_rows(gemm))
    return MatmulProvider::kFewRows;
  if (cpu_class >= CpuClass::kAvx512) {
    if (few_rows(gemm)) return MatmulProvider::kFewRows;
    // Deep sums with b stored by columns: sgemm falls to 0.6 to 0.8 of a register-only loop.
    constexpr std::int64_t kDepth = 1024;
    const bool packed = wide_columns(gemm) || (gemm.b.transposed && gemm.k >= kDepth);
    if (packed && worth_packing(gemm)) return MatmulProvider::kPacked;
  }
  if (cpu_class != CpuClass::kAvx2) return MatmulProvider::kOneDnnSgemm;
  // OpenBLAS rearranges a wide b faster for few rows, and a transposed a. Products below kWork it
  // gives to all threads, which then wait for each other longer than they multiply where the cores
  // have other work.
  constexpr std::int64_t kRows = 512, kWork = 1 << 24;
  const bool gradient = gemm.a.transposed && gemm.m * gemm.n * gemm.k >= kWork;
  return gradient || (wide_columns(gemm) && gemm.m <= kRows) ? MatmulProvider::kOpenBlas
                                                             : MatmulProvider::kOneDnnSgemm;
}

}  // namespace

MatmulProvider choose_matmul_provider(CpuClass cpu_class, DType dtype, const Gemm& gemm,
                                      bool batch_invariant) {
  if (dtype == DType::kFloat64) return MatmulProvider::kOpenBlas;
  return dtype == DType::kBFloat16 ? choose_bfloat16(cpu_class, gemm)
                                   : choose_float32(cpu_class, gemm, batch_invariant);
}

}  // namespace meshloom::kernels::cpu
