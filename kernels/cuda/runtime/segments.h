// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU, and of the host for copies to and from it.
#pragma once

#include <memory>

#include "kernels/base/segment_source.h"

namespace meshloom::kernels::cuda {

/// Segments of whole multiples of it come from the device: few and large, since each allocation
/// makes the device wait.
inline constexpr std::size_t kDeviceGranularity = std::size_t{64} << 20;
inline constexpr std::size_t kPinnedGranularity = std::size_t{2} << 20;

/// Memory of device `index` (kDevice), or pinned memory of the host for it (kHost). Throws
/// Unimplemented for kSymmetric.
std::unique_ptr<SegmentSource> make_cuda_source(int index, MemoryKind kind);

}  // namespace meshloom::kernels::cuda
