// SPDX-License-Identifier: Apache-2.0
// Grids of one dim: how many blocks a launch has, and where a thread is in them.
#pragma once

#include "kernels/base/integer_math.h"
#include "kernels/cuda/device.h"

namespace meshloom::kernels::cuda {

/// What CUDA takes in x.
inline constexpr std::int64_t kMostBlocks = 0x7fffffff;
/// Some waves of blocks on any card: threads of larger calls take several items.
inline constexpr std::int64_t kMostStridedBlocks = 8192;

/// Blocks for items of which each takes at most `per_block`. Throws InternalError above
/// kMostBlocks.
inline dim3 grid_for(std::int64_t items, std::int64_t per_block) {
  const std::int64_t blocks = divide_up(items, per_block);
  if (blocks > kMostBlocks) check_launch(cudaErrorInvalidConfiguration, "2^31 blocks or more");
  return dim3(static_cast<unsigned>(blocks));
}

/// The same with at most kMostStridedBlocks, for kernels that go on by grid_threads().
inline dim3 strided_grid(std::int64_t items, std::int64_t per_block) {
  const std::int64_t most = kMostStridedBlocks * per_block;
  return grid_for(items < most ? items : most, per_block);
}

/// This thread among all of a grid whose blocks have kThreads.
template <int kThreads>
__device__ __forceinline__ std::int64_t grid_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

template <int kThreads>
__device__ __forceinline__ std::int64_t grid_threads() {
  return static_cast<std::int64_t>(gridDim.x) * kThreads;
}

}  // namespace meshloom::kernels::cuda
