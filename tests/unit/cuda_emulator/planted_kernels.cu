// SPDX-License-Identifier: Apache-2.0
// Compiled with MESHLOOM_PLANTED_NAMESPACE: unoptimised, or optimised.
#include "tests/unit/cuda_emulator/planted_kernels.h"

#include "kernels/cuda/device.h"

namespace meshloom::testing::MESHLOOM_PLANTED_NAMESPACE {
namespace {

using kernels::cuda::launch;

constexpr int kThreads = 128;

__device__ float block_sum(float value, Planted planted) {
  MESHLOOM_SHARED(partial, float[kThreads / 32]);
  const unsigned mask = planted == Planted::kWrongMask ? 0x0000ffffu : 0xffffffffu;
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(mask, value, offset);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  if (planted != Planted::kMissingBarrier) __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp) sum += partial[warp];
  return sum;
}

__global__ void row_sums_kernel(float* out, const float* in, int columns, Planted planted) {
  const float* row = in + static_cast<std::size_t>(blockIdx.x) * columns;
  float sum = 0;
  const int shift = planted == Planted::kMisalignedVector ? 1 : 0;
  for (int c = threadIdx.x * 4; c < columns - 4 * shift; c += kThreads * 4) {
    const float4 v = *reinterpret_cast<const float4*>(row + c + shift);
    sum += v.x + v.y + v.z + v.w;
  }
  if (planted == Planted::kReadPastEnd && threadIdx.x == 3) sum += row[columns];
  sum = block_sum(sum, planted);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void transpose_kernel(float* out, const float* in, int rows, int columns,
                                 Planted planted) {
  MESHLOOM_SHARED(tile, float[32][33]);
  const int column = blockIdx.x * 32 + threadIdx.x;
  if (planted == Planted::kUnreachedBarrier && column >= columns) return;
  for (int i = threadIdx.y; i < 32; i += 8) {
    const int row = blockIdx.y * 32 + i;
    if (row < rows && column < columns)
      tile[i][threadIdx.x] = in[static_cast<std::size_t>(row) * columns + column];
  }
  __syncthreads();
  const int row = blockIdx.y * 32 + threadIdx.x;
  for (int i = threadIdx.y; i < 32; i += 8) {
    const int to = blockIdx.x * 32 + i;
    if (to < columns && row < rows)
      out[static_cast<std::size_t>(to) * rows + row] = tile[threadIdx.x][i];
    if (planted == Planted::kRace) tile[i][threadIdx.x] = 0;
  }
}

__global__ void add_one_kernel(float* out, const float* in, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] + 1;
}

__global__ void number_kernel(float* out, int n) {
  MESHLOOM_DYNAMIC_SHARED(line, float);
  line[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < n) out[threadIdx.x] = line[threadIdx.x];
}

__global__ void count_blocks_kernel(int* sum, bool atomic) {
  if (threadIdx.x != 0) return;
  if (atomic)
    atomicAdd(sum, 1);
  else
    *sum += 1;
}

__global__ void warp_calls_kernel(int* out) {
  const int lane = threadIdx.x;
  int* mine = out + lane * 8;
  mine[0] = __shfl_sync(0xffffffffu, lane, 5);
  mine[1] = __shfl_up_sync(0xffffffffu, lane, 3);
  mine[2] = __shfl_down_sync(0xffffffffu, lane, 3);
  mine[3] = __shfl_xor_sync(0xffffffffu, lane, 7, 8);
  mine[4] = static_cast<int>(__ballot_sync(0xffffffffu, lane % 2));
  mine[5] = __reduce_max_sync(0xffffffffu, 7 - lane);
  mine[6] = __syncthreads_count(lane < 11);
  mine[7] = static_cast<int>(__shfl_down_sync(0xffffffffu, 0.5 + lane, 1, 16) * 2);
}

__global__ void read_by_many_kernel(float* out, float* in, int writer) {
  out[blockIdx.x] = in[0];
  if (static_cast<int>(blockIdx.x) == writer) in[0] = 1;
}

}  // namespace

void row_sums(float* out, const float* in, int rows, int columns, Planted planted,
              cudaStream_t stream) {
  launch(row_sums_kernel, dim3(rows), dim3(kThreads), 0, stream, out, in, columns, planted);
}

void transpose(float* out, const float* in, int rows, int columns, Planted planted,
               cudaStream_t stream) {
  launch(transpose_kernel, dim3((columns + 31) / 32, (rows + 31) / 32), dim3(32, 8), 0, stream, out,
         in, rows, columns, planted);
}

void add_one(float* out, const float* in, int n, cudaStream_t stream) {
  launch(add_one_kernel, dim3((n + kThreads - 1) / kThreads), dim3(kThreads), 0, stream, out, in,
         n);
}

void number(float* out, int n, int threads, std::size_t shared, bool allow_shared,
            cudaStream_t stream) {
  if (allow_shared) return launch(number_kernel, dim3(1), dim3(threads), shared, stream, out, n);
  const auto call = [out, n] { number_kernel(out, n); };
  using Call = std::remove_const_t<decltype(call)>;
  kernels::cuda::check_launch(
      emulator::launch_kernel({nullptr, dim3(1), dim3(threads), shared, &call, sizeof(Call),
                               [](const void* c) { (*static_cast<const Call*>(c))(); }},
                              stream),
      "number");
}

void count_blocks(int* sum, bool atomic, cudaStream_t stream) {
  launch(count_blocks_kernel, dim3(8), dim3(64), 0, stream, sum, atomic);
}

void warp_calls(int* out, cudaStream_t stream) {
  launch(warp_calls_kernel, dim3(1), dim3(32), 0, stream, out);
}

void read_by_many(float* out, float* in, int writer, cudaStream_t stream) {
  launch(read_by_many_kernel, dim3(8), dim3(1), 0, stream, out, in, writer);
}

}  // namespace meshloom::testing::MESHLOOM_PLANTED_NAMESPACE
