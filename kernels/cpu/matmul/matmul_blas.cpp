// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/matmul_blas.h"

#include <cblas.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace meshloom::kernels::cpu {
namespace {

CBLAS_TRANSPOSE transpose(const GemmOperand& operand) {
  return operand.transposed ? CblasTrans : CblasNoTrans;
}

blasint narrow(std::int64_t value) { return static_cast<blasint>(value); }

}  // namespace

bool blas_knows_cpu() {
  static const bool known = [] {
    constexpr std::array<std::string_view, 5> kWithAvx2{"Haswell", "Zen", "SkylakeX", "Cooperlake",
                                                        "SapphireRapids"};
    const std::string_view core = openblas_get_corename();
    return std::find(kWithAvx2.begin(), kWithAvx2.end(), core) != kWithAvx2.end();
  }();
  return known;
}

void blas_gemm_f32(const Gemm& g) {
  cblas_sgemm(CblasRowMajor, transpose(g.a), transpose(g.b), narrow(g.m), narrow(g.n), narrow(g.k),
              g.alpha, static_cast<const float*>(g.a.data), narrow(g.a.ld),
              static_cast<const float*>(g.b.data), narrow(g.b.ld), g.beta, static_cast<float*>(g.y),
              narrow(g.ldy));
}

void blas_gemm_f64(const Gemm& g) {
  cblas_dgemm(CblasRowMajor, transpose(g.a), transpose(g.b), narrow(g.m), narrow(g.n), narrow(g.k),
              g.alpha, static_cast<const double*>(g.a.data), narrow(g.a.ld),
              static_cast<const double*>(g.b.data), narrow(g.b.ld), g.beta,
              static_cast<double*>(g.y), narrow(g.ldy));
}

}  // namespace meshloom::kernels::cpu
