// SPDX-License-Identifier: Apache-2.0
// Products of small matrices by the tensor cores of sm_80 and newer, and how their fragments are
// loaded. Every lane of a warp calls these functions together. Source: PTX ISA, sections on mma and
// ldmatrix.
//
// A fragment is what one lane holds. With g = lane / 4 and t = lane % 4, elements (row, column) are
//   a [16 x 16]: (g, 2t), (g, 2t+1) | (g+8, ...) | (g, 2t+8), (g, 2t+9) | (g+8, 2t+8), ...  two
//   bfloat16 a word b [16 x 8]:  (2t, g), (2t+1, g) | (2t+8, g), (2t+9, g) two bfloat16 a word c
//   [16 x 8]:  (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)                                 a float32
//   each
#pragma once

#include "kernels/cuda/device.h"

namespace meshloom::kernels::cuda {

/// c += a b, in float32.
__device__ __forceinline__ void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1) {
#ifdef __CUDACC__
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  emulator::multiply_add(c, a, b0, b1);
#endif
}

/// Loads four matrices of 8 x 8 elements of 16 bits from shared memory: lane l gives the address, a
/// multiple of 16 bytes, of row l % 8 of matrix l / 8, and gets elements (l / 4, 2 (l % 4)) and the
/// next one of matrix i in words[i].
__device__ __forceinline__ void load_matrices(unsigned (&words)[4], const void* row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
#else
  emulator::load_matrices(words, row, false);
#endif
}

/// The same of the transposed matrices: elements (2 (l % 4), l / 4) and the one below.
__device__ __forceinline__ void load_transposed_matrices(unsigned (&words)[4], const void* row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
#else
  emulator::load_matrices(words, row, true);
#endif
}

/// Two float32 as the bfloat16 of one word, the first one in its low half.
__device__ __forceinline__ unsigned pack_bfloat16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return static_cast<unsigned>(__bfloat16_as_ushort(pair.x)) |
         static_cast<unsigned>(__bfloat16_as_ushort(pair.y)) << 16;
}

}  // namespace meshloom::kernels::cuda
