// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul_onednn.h"

#include <dnnl.hpp>

#include "kernels/base/error.h"

namespace meshloom::kernels::cpu {
namespace {

dnnl::cpu_isa isa_of(CpuClass cpu_class) {
  switch (cpu_class) {
    case CpuClass::kSse4: return dnnl::cpu_isa::sse41;
    case CpuClass::kAvx2: return dnnl::cpu_isa::avx2;
    case CpuClass::kAvx512: return dnnl::cpu_isa::avx512_core;
    case CpuClass::kAvx512Bf16: return dnnl::cpu_isa::avx512_core_bf16;
    case CpuClass::kAmx: break;
  }
  return dnnl::cpu_isa::all;
}

char transpose(const GemmOperand& operand) { return operand.transposed ? 'T' : 'N'; }

}  // namespace

void lower_onednn(CpuClass cpu_class) { dnnl::set_max_cpu_isa(isa_of(cpu_class)); }

void onednn_sgemm(const Gemm& g) {
  const dnnl_status_t status = dnnl_sgemm(
      transpose(g.a), transpose(g.b), g.m, g.n, g.k, g.alpha, static_cast<const float*>(g.a.data),
      g.a.ld, static_cast<const float*>(g.b.data), g.b.ld, g.beta, static_cast<float*>(g.y), g.ldy);
  check_internal(status == dnnl_success, "matmul: oneDNN sgemm [{}, {}, {}] failed with status {}",
                 g.m, g.n, g.k, static_cast<int>(status));
}

}  // namespace meshloom::kernels::cpu
