// SPDX-License-Identifier: Apache-2.0
// What products on a CUDA device need beside their operands: what its library may ask for, and what
// estimates count.
#pragma once

#include <cstdint>

namespace meshloom::kernels {

/// The library's kernels that want more workspace are not taken, so that a shape's kernel depends
/// on no memory that is free.
inline constexpr std::int64_t kDeviceProductBytes = 32 << 20;

}  // namespace meshloom::kernels
