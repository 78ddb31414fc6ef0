// SPDX-License-Identifier: Apache-2.0
// A stable sort of indices by keys: a radix sort of eight bits a pass, without atomics. Costs per
// pass: keys and indices are read twice and written once, in three launches.
#pragma once

#include <utility>

#include "kernels/cuda/primitives/grid.h"
#include "kernels/cuda/primitives/reductions.h"

namespace meshloom::kernels::cuda {

inline constexpr int kSortThreads = 256;
inline constexpr int kSortWarps = kSortThreads / kWarp;
inline constexpr int kSortItems = 8;  // of a thread
inline constexpr int kSortTile = kSortThreads * kSortItems;
inline constexpr int kDigits = 256;
static_assert(kDigits == kSortThreads, "threads stand for digits where counts are added");

/// How many keys of each digit the warps of a block have seen.
using DigitCounts = std::uint32_t[kSortWarps][kDigits];

struct SortPass {
  const std::uint32_t* keys;
  const std::uint32_t* indices;  // null: key i has index i
  std::uint32_t* sorted_keys;
  std::uint32_t* sorted_indices;
  std::uint32_t* offsets;  // [tiles, digits]
  std::int64_t count;
  int shift;

  /// A warp has neighbouring keys, and in each step one a lane.
  __device__ __forceinline__ std::int64_t item(int step) const {
    return static_cast<std::int64_t>(blockIdx.x) * kSortTile +
           threadIdx.x / kWarp * (kWarp * kSortItems) + step * kWarp + threadIdx.x % kWarp;
  }
};

/// Counts the digits of this warp's keys. places[step] is how many of the warp's keys before it
/// have its digit. Ends with a barrier of the block.
__device__ __forceinline__ void count_digits(const SortPass& pass, DigitCounts& counts,
                                             std::uint32_t (&keys)[kSortItems],
                                             std::uint32_t (&places)[kSortItems]) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int w = 0; w < kSortWarps; ++w) counts[w][threadIdx.x] = 0;
  __syncthreads();
  for (int step = 0; step < kSortItems; ++step) {
    const bool valid = pass.item(step) < pass.count;
    keys[step] = valid ? pass.keys[pass.item(step)] : 0;
    const unsigned digit = keys[step] >> pass.shift & (kDigits - 1);
    unsigned peers = __ballot_sync(kWholeWarp, valid);
    for (int bit = 0; bit < 8; ++bit) {
      const unsigned set = __ballot_sync(kWholeWarp, digit >> bit & 1);
      peers &= (digit >> bit & 1) != 0 ? set : ~set;
    }
    const unsigned before = counts[warp][digit];
    const unsigned rank = static_cast<unsigned>(__popc(peers & ((1u << lane) - 1)));
    places[step] = before + rank;
    __syncwarp();
    if (valid && rank == 0) counts[warp][digit] = before + static_cast<unsigned>(__popc(peers));
    __syncwarp();
  }
  __syncthreads();
}

static __global__ void __launch_bounds__(kSortThreads) sort_count_tile(SortPass pass) {
  MESHLOOM_SHARED(counts, DigitCounts);
  std::uint32_t keys[kSortItems], places[kSortItems];
  count_digits(pass, counts, keys, places);
  std::uint32_t all = 0;
  for (int warp = 0; warp < kSortWarps; ++warp) all += counts[warp][threadIdx.x];
  pass.offsets[static_cast<std::int64_t>(blockIdx.x) * kDigits + threadIdx.x] = all;
}

/// From the tiles' counts to where each of them writes its keys of each digit. One block.
static __global__ void __launch_bounds__(kSortThreads)
    sort_offsets(std::uint32_t* offsets, std::int64_t tiles) {
  MESHLOOM_SHARED(sums, std::uint32_t[kDigits]);
  std::uint32_t all = 0;
  for (std::int64_t tile = 0; tile < tiles; ++tile) all += offsets[tile * kDigits + threadIdx.x];
  sums[threadIdx.x] = all;
  __syncthreads();
  for (unsigned distance = 1; distance < kDigits; distance *= 2) {
    const std::uint32_t below = threadIdx.x >= distance ? sums[threadIdx.x - distance] : 0;
    __syncthreads();
    sums[threadIdx.x] += below;
    __syncthreads();
  }
  std::uint32_t next = sums[threadIdx.x] - all;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t at = tile * kDigits + threadIdx.x;
    const std::uint32_t count = offsets[at];
    offsets[at] = next;
    next += count;
  }
}

static __global__ void __launch_bounds__(kSortThreads) sort_scatter_tile(SortPass pass) {
  MESHLOOM_SHARED(counts, DigitCounts);
  std::uint32_t keys[kSortItems], places[kSortItems];
  count_digits(pass, counts, keys, places);
  std::uint32_t next = pass.offsets[static_cast<std::int64_t>(blockIdx.x) * kDigits + threadIdx.x];
  for (int warp = 0; warp < kSortWarps; ++warp) {
    const std::uint32_t count = counts[warp][threadIdx.x];
    counts[warp][threadIdx.x] = next;
    next += count;
  }
  __syncthreads();
  for (int step = 0; step < kSortItems; ++step) {
    const std::int64_t i = pass.item(step);
    if (i >= pass.count) continue;
    const unsigned digit = keys[step] >> pass.shift & (kDigits - 1);
    const std::uint32_t to = counts[threadIdx.x / kWarp][digit] + places[step];
    pass.sorted_keys[to] = keys[step];
    pass.sorted_indices[to] =
        pass.indices != nullptr ? pass.indices[i] : static_cast<std::uint32_t>(i);
  }
}

/// Elements of uint32 that stable_sort works in.
inline std::int64_t stable_sort_scratch(std::int64_t count) {
  return 4 * count + divide_up<std::int64_t>(count, kSortTile) * kDigits;
}

struct SortedKeys {
  const std::uint32_t* keys;
  const std::uint32_t* indices;  ///< of keys[i] before the sort
};

/// Sorts the `count` keys that the caller has put at the beginning of the scratch; none is above
/// `largest`.
inline SortedKeys stable_sort(std::uint32_t* scratch, std::int64_t count, std::uint32_t largest,
                              cudaStream_t stream) {
  const std::int64_t tiles = divide_up<std::int64_t>(count, kSortTile);
  const dim3 grid = grid_for(tiles, 1), block(kSortThreads);
  SortPass pass{scratch, nullptr, scratch + 2 * count, scratch + 3 * count, scratch + 4 * count,
                count,   0};
  std::uint32_t* other = scratch;
  for (pass.shift = 0; pass.shift == 0 || (pass.shift < 32 && largest >> pass.shift != 0);
       pass.shift += 8) {
    launch(sort_count_tile, grid, block, 0, stream, pass);
    launch(sort_offsets, dim3(1), block, 0, stream, pass.offsets, tiles);
    launch(sort_scatter_tile, grid, block, 0, stream, pass);
    pass.keys = pass.sorted_keys;
    pass.indices = pass.sorted_indices;
    std::swap(other, pass.sorted_keys);
    pass.sorted_indices = pass.sorted_keys + count;
  }
  return {pass.keys, pass.indices};
}

}  // namespace meshloom::kernels::cuda
