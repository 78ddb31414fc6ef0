// SPDX-License-Identifier: Apache-2.0
// A warp that loads small matrices, shows its fragments and multiplies them.
#pragma once

#include <driver_types.h>

#include <cstdint>

namespace meshloom::testing {

/// What a warp shows, lane by lane; a and b of bfloat16 in pairs.
struct Fragments {
  std::uint32_t a[32][4];
  std::uint32_t b[32][4];       ///< two fragments of 8 columns, from the rows of b^T
  std::uint32_t same_b[32][4];  ///< the same from the rows of b, transposed
  float c[32][2][4];
};

/// How the warp waits for its copies before it reads what they bring.
enum class CopyWait { kAll, kNone, kFirstGroup };

/// From a [16, 16], b^T [16, 16] and b [16, 16] of bfloat16, whose copies are a group each.
void show_fragments(Fragments* out, const void* a, const void* b_transposed, const void* b,
                    CopyWait wait, cudaStream_t stream);
/// The first warp of two lanes fewer than there are multiplies.
void multiply_without_all_lanes(float* out, cudaStream_t stream);

}  // namespace meshloom::testing
