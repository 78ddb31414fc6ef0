// SPDX-License-Identifier: Apache-2.0
// Sums over the rows of a matrix in two stages: blocks sum the columns of slabs of rows, then the
// slabs' sums are added in order. A block has kColumnLanes threads side by side along the columns
// and kRowLanes along the rows, whose sums are added in order as well.
#pragma once

#include <algorithm>

#include "kernels/cuda/primitives/grid.h"

namespace meshloom::kernels::cuda {

inline constexpr int kColumnLanes = 32;
inline constexpr int kRowLanes = 8;
inline constexpr int kColumnSumThreads = kColumnLanes * kRowLanes;

/// Rows are cut into so many slabs: one for every 64 rows, 256 at most.
inline std::int64_t column_slabs(std::int64_t rows) {
  return std::clamp<std::int64_t>(divide_up<std::int64_t>(rows, 64), 1, 256);
}

/// Adds what threads of one column lane have: thread (0, lane) gets it. `shared` has room for
/// kColumnSumThreads values; all threads of the block call it.
template <class F>
__device__ __forceinline__ F add_row_lanes(F* shared, F value) {
  __syncthreads();  // the call before may still be reading
  shared[threadIdx.x] = value;
  __syncthreads();
  F sum = 0;
  if (threadIdx.x < kColumnLanes)
    for (int r = 0; r < kRowLanes; ++r) sum += shared[r * kColumnLanes + threadIdx.x];
  return sum;
}

/// out = (accumulate ? out : 0) + the sum over the slabs. blockIdx.y chooses between two sums that
/// follow one another in `partials`, [2, slabs, columns]; one that is not wanted has no out.
template <class F>
__global__ void __launch_bounds__(kColumnSumThreads)
    add_slabs(F* first, F* second, const F* partials, std::int64_t slabs, std::int64_t columns,
              bool accumulate) {
  MESHLOOM_SHARED(shared, F[kColumnSumThreads]);
  F* out = blockIdx.y == 0 ? first : second;
  if (out == nullptr) return;
  partials += blockIdx.y * slabs * columns;
  const std::int64_t column =
      static_cast<std::int64_t>(blockIdx.x) * kColumnLanes + threadIdx.x % kColumnLanes;
  F sum = 0;
  if (column < columns)
    for (std::int64_t s = threadIdx.x / kColumnLanes; s < slabs; s += kRowLanes)
      sum += partials[s * columns + column];
  sum = add_row_lanes(shared, sum);
  if (threadIdx.x < kColumnLanes && column < columns)
    out[column] = accumulate ? out[column] + sum : sum;
}

template <class F>
void launch_add_slabs(F* first, F* second, const F* partials, std::int64_t slabs,
                      std::int64_t columns, bool accumulate, cudaStream_t stream) {
  launch(add_slabs<F>, dim3(grid_for(columns, kColumnLanes).x, second != nullptr ? 2 : 1),
         dim3(kColumnSumThreads), 0, stream, first, second, partials, slabs, columns, accumulate);
}

}  // namespace meshloom::kernels::cuda
