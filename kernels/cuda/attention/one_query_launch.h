// SPDX-License-Identifier: Apache-2.0
// Attention of one query a batch row over all keys that the row has, as a token of generation asks
// for it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cuda/attention/flash_launch.h"

namespace meshloom::kernels::cuda {

/// Keys are cut into splits of so many, whose results are merged in their order: what a row gives
/// depends on its own length alone.
inline constexpr std::int64_t kSplitKeys = 256;
/// Rows of a launch at most: they are a kernel's argument.
inline constexpr int kMostLaunchRows = 32;

/// Keys and values of one row, [Hkv, length, D] and [Hkv, length, Dv] by strides in elements.
struct RowMemory {
  const void* k = nullptr;
  const void* v = nullptr;
  std::int64_t length = 0;
  std::int64_t k_head = 0, k_row = 0, k_last = 0, v_head = 0, v_row = 0, v_last = 0;
};

struct OneQueryCall {
  DType dtype = DType::kFloat32;
  int rows = 0;
  RowMemory memories[kMostLaunchRows];
  std::int64_t heads = 0, kv_heads = 0;
  std::int64_t splits = 0;  ///< of the longest row
  float scale = 0.0f;
  HeadView q, o;  ///< from the launch's first row on
  QueryNumbers lse;
  void* partial = nullptr;  ///< one_query_bytes
};

/// How much the splits leave for the second kernel.
std::size_t one_query_bytes(const OneQueryCall& call);
void launch_one_query(const OneQueryCall& call, cudaStream_t stream);

}  // namespace meshloom::kernels::cuda
