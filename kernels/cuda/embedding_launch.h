// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <cstddef>

#include "kernels/cuda/device_view.h"

namespace meshloom::kernels::cuda {

/// At least one element of y, as Backend::embedding; any dtype.
void launch_embedding(const DeviceView& y, const DeviceView& weight, const DeviceView& ids,
                      cudaStream_t stream);

/// The most ids, and the most rows of a table, that launch_embedding_backward takes.
inline constexpr std::int64_t kMostEmbeddingIds = std::int64_t{1} << 31;

/// At least one id and one element of dweight, as Backend::embedding_backward.
void launch_embedding_backward(const DeviceView& dweight, const DeviceView& dy,
                               const DeviceView& ids, std::int64_t padding_idx, void* scratch,
                               cudaStream_t stream);
/// Bytes of its scratch for so many ids.
std::size_t embedding_backward_scratch(std::int64_t ids);

}  // namespace meshloom::kernels::cuda
