// SPDX-License-Identifier: Apache-2.0
// Moves pieces of any dtype and stride through small dense buffers, for the cases that have no fast
// path.
#pragma once

#include <cstdint>

#include "kernels/base/tensor_view.h"

namespace meshloom::kernels::cpu {

/// Elements of one staging buffer: small enough that a few of them stay in the first-level cache.
inline constexpr std::int64_t kStagingSize = 512;

/// buffer[i] = element at view.data + (offset + i * stride), i in [0, n). Throws Unimplemented for
/// float8.
void gather(float* buffer, const TensorView& view, std::int64_t offset, std::int64_t stride,
            std::int64_t n);
void gather(double* buffer, const TensorView& view, std::int64_t offset, std::int64_t stride,
            std::int64_t n);
/// Does the other way round. Integers are truncated towards 0; bool is 1 where the value is not 0.
void scatter(const float* buffer, const TensorView& view, std::int64_t offset, std::int64_t stride,
             std::int64_t n);
void scatter(const double* buffer, const TensorView& view, std::int64_t offset, std::int64_t stride,
             std::int64_t n);

}  // namespace meshloom::kernels::cpu
