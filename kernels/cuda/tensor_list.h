// SPDX-License-Identifier: Apache-2.0
// Lists of tensors as a kernel's argument: their elements lie end to end in chunks, one a block,
// that belong to one tensor each. For .cu files.
#pragma once

#include "kernels/cuda/device.h"

namespace meshloom::kernels::cuda {

/// Item needs `std::int64_t numel` and `int first_chunk`. A list has at least one item and less
/// than 32 KB.
template <class Item, int kMost>
struct TensorList {
  static constexpr int kCapacity = kMost;

  int count = 0;
  int chunks = 0;  ///< of all items
  Item items[kMost];
};

/// The item that a block's chunk belongs to: the last one that begins at or before it.
template <class List>
__device__ __forceinline__ int item_of_chunk(const List& list, int chunk) {
  int low = 0, high = list.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (list.items[middle].first_chunk <= chunk)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace meshloom::kernels::cuda
