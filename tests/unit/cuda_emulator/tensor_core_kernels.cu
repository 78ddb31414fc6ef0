// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/cuda_emulator/tensor_core_kernels.h"

#include "kernels/cuda/primitives/async_copy.h"
#include "kernels/cuda/primitives/tensor_core.h"

namespace meshloom::testing {
namespace {

namespace cuda = kernels::cuda;

constexpr int kSide = 16;
constexpr int kBytes = kSide * kSide * 2;

__device__ void copy_matrix(unsigned char* to, const void* from) {
  // 32 pieces of 16 bytes: one for each lane.
  cuda::begin_copy(to + threadIdx.x * 16,
                   static_cast<const unsigned char*>(from) + threadIdx.x * 16, true);
  cuda::end_copy_group();
}

__global__ void show_fragments_kernel(Fragments* out, const void* a, const void* b_transposed,
                                      const void* b, CopyWait wait) {
  MESHLOOM_DYNAMIC_SHARED(shared, unsigned char);
  copy_matrix(shared, a);
  copy_matrix(shared + kBytes, b_transposed);
  copy_matrix(shared + 2 * kBytes, b);
  if (wait == CopyWait::kAll) cuda::wait_for_copies<0>();
  if (wait == CopyWait::kFirstGroup) cuda::wait_for_copies<2>();
  __syncwarp();
  const int lane = threadIdx.x;
  unsigned x[4], y[4], same[4];
  cuda::load_matrices(x, shared + lane % 16 * 32 + lane / 16 * 16);
  cuda::load_matrices(y, shared + kBytes + (lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16);
  cuda::load_transposed_matrices(same, shared + 2 * kBytes + lane % 16 * 32 + lane / 16 * 16);
  float c[2][4] = {};
  cuda::multiply_add(c[0], x, y[0], y[1]);
  cuda::multiply_add(c[1], x, y[2], y[3]);
  for (int i = 0; i < 4; ++i) {
    out->a[lane][i] = x[i];
    out->b[lane][i] = y[i];
    out->same_b[lane][i] = same[i];
    for (int half = 0; half < 2; ++half) out->c[lane][half][i] = c[half][i];
  }
}

__global__ void multiply_kernel(float* out) {
  const unsigned zeros[4] = {};
  float c[4] = {};
  if (threadIdx.x < 30) cuda::multiply_add(c, zeros, 0, 0);
  out[threadIdx.x] = c[0];
}

}  // namespace

void show_fragments(Fragments* out, const void* a, const void* b_transposed, const void* b,
                    CopyWait wait, cudaStream_t stream) {
  cuda::launch(show_fragments_kernel, dim3(1), dim3(32), 3 * kBytes, stream, out, a, b_transposed,
               b, wait);
}

void multiply_without_all_lanes(float* out, cudaStream_t stream) {
  cuda::launch(multiply_kernel, dim3(1), dim3(32), 0, stream, out);
}

}  // namespace meshloom::testing
