// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul_blas.h"

#include <cblas.h>

namespace meshloom::kernels::cpu {
namespace {

CBLAS_TRANSPOSE transpose(const GemmOperand& operand) {
  return operand.transposed ? CblasTrans : CblasNoTrans;
}

blasint narrow(std::int64_t value) { return static_cast<blasint>(value); }

}  // namespace

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
