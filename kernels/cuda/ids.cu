// SPDX-License-Identifier: Apache-2.0
// Ids of tokens and classes.
#include "kernels/cuda/ids_launch.h"

#include "kernels/cuda/primitives/grid.h"
#include "kernels/cuda/primitives/reductions.h"

namespace meshloom::kernels::cuda {
namespace {

constexpr int kThreads = 256;
// Ids of a block of the searches.
constexpr std::int64_t kBlockIds = 4096;
constexpr std::int64_t kNoIndex = 0x7fffffffffffffff;

struct MinOf {
  __device__ __forceinline__ std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    return a < b ? a : b;
  }
};

struct RangeList {
  static constexpr int kCapacity = 64;
  int count;
  PlacedRange ranges[kCapacity];
};

// A list that is not the first one changes only what it knows.
__global__ void __launch_bounds__(kThreads)
    place_ids(std::int64_t* places, const std::int64_t* ids, std::int64_t n,
              const __grid_constant__ RangeList list, bool first, std::int64_t special,
              std::int64_t special_place, std::int64_t other) {
  for (std::int64_t i = grid_thread<kThreads>(); i < n; i += grid_threads<kThreads>()) {
    const std::int64_t id = ids[i];
    std::int64_t place = other;
    bool known = first;
    // The first one counts where ranges overlap.
    for (int r = list.count - 1; r >= 0; --r) {
      const PlacedRange& range = list.ranges[r];
      if (id < range.begin || id >= range.end) continue;
      place = range.place + (id - range.begin);
      known = true;
    }
    if (id == special) place = special_place;
    if (known) places[i] = place;
  }
}

// The result of one block: of ids [blockIdx.x * kBlockIds, ...).
__global__ void __launch_bounds__(kThreads)
    find_outside(std::int64_t* first, const std::int64_t* ids, std::int64_t n, std::int64_t limit,
                 bool has_allowed, std::int64_t allowed) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kBlockIds;
  const std::int64_t end = begin + kBlockIds < n ? begin + kBlockIds : n;
  std::int64_t least = kNoIndex;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const std::int64_t id = ids[i];
    const bool outside = (id < 0 || id >= limit) && !(has_allowed && id == allowed);
    if (outside && i < least) least = i;
  }
  least = block_reduce<kThreads>(least, MinOf{});
  if (threadIdx.x == 0) first[blockIdx.x] = least;
}

__global__ void __launch_bounds__(kThreads)
    join_found(std::int64_t* found, const std::int64_t* first, std::int64_t parts,
               const std::int64_t* ids) {
  std::int64_t least = kNoIndex;
  for (std::int64_t i = threadIdx.x; i < parts; i += kThreads)
    if (first[i] < least) least = first[i];
  least = block_reduce<kThreads>(least, MinOf{});
  if (threadIdx.x != 0) return;
  found[0] = least == kNoIndex ? -1 : least;
  found[1] = least == kNoIndex ? 0 : ids[least];
}

__global__ void __launch_bounds__(kThreads)
    count_in_blocks(std::int64_t* counts, const std::int64_t* ids, std::int64_t n,
                    std::int64_t id) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kBlockIds;
  const std::int64_t end = begin + kBlockIds < n ? begin + kBlockIds : n;
  std::int64_t count = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) count += ids[i] == id ? 1 : 0;
  count = block_reduce<kThreads>(count, SumOf{});
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

__global__ void __launch_bounds__(kThreads)
    add_counts(std::int64_t* total, const std::int64_t* counts, std::int64_t parts) {
  std::int64_t count = 0;
  for (std::int64_t i = threadIdx.x; i < parts; i += kThreads) count += counts[i];
  count = block_reduce<kThreads>(count, SumOf{});
  if (threadIdx.x == 0) *total = count;
}

}  // namespace

void launch_slice_ids(std::int64_t* places, const std::int64_t* ids, std::int64_t n,
                      const PlacedRange* ranges, int count, std::int64_t special,
                      std::int64_t special_place, std::int64_t other, cudaStream_t stream) {
  // Lists go from the last to the first, so that the first range that has an id counts.
  const int lists = count == 0 ? 1 : divide_up(count, RangeList::kCapacity);
  for (int k = lists - 1; k >= 0; --k) {
    RangeList list{};
    const int begin = k * RangeList::kCapacity;
    for (int r = begin; r < count && list.count < RangeList::kCapacity; ++r)
      list.ranges[list.count++] = ranges[r];
    launch(place_ids, strided_grid(n, kThreads), dim3(kThreads), 0, stream, places, ids, n, list,
           k == lists - 1, special, special_place, other);
  }
}

std::size_t ids_workspace(std::int64_t n) {
  return static_cast<std::size_t>(divide_up(n, kBlockIds)) * sizeof(std::int64_t);
}

void launch_first_id_outside(std::int64_t* found, const std::int64_t* ids, std::int64_t n,
                             std::int64_t limit, const std::int64_t* allowed, void* workspace,
                             cudaStream_t stream) {
  auto* const first = static_cast<std::int64_t*>(workspace);
  const std::int64_t parts = divide_up(n, kBlockIds);
  if (parts > 0)
    launch(find_outside, grid_for(parts, 1), dim3(kThreads), 0, stream, first, ids, n, limit,
           allowed != nullptr, allowed != nullptr ? *allowed : 0);
  launch(join_found, dim3(1), dim3(kThreads), 0, stream, found, first, parts, ids);
}

void launch_count_ids(std::int64_t* count, const std::int64_t* ids, std::int64_t n, std::int64_t id,
                      void* workspace, cudaStream_t stream) {
  auto* const counts = static_cast<std::int64_t*>(workspace);
  const std::int64_t parts = divide_up(n, kBlockIds);
  if (parts > 0)
    launch(count_in_blocks, grid_for(parts, 1), dim3(kThreads), 0, stream, counts, ids, n, id);
  launch(add_counts, dim3(1), dim3(kThreads), 0, stream, count, counts, parts);
}

}  // namespace meshloom::kernels::cuda
