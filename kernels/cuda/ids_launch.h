// SPDX-License-Identifier: Apache-2.0
// Launches of the kernels on ids: int64, dense, n of them.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

namespace meshloom::kernels::cuda {

/// Ids [begin, end), whose places begin at `place`.
struct PlacedRange {
  std::int64_t begin, end, place;
};

/// places[i] = that of ids[i] in the ranges, `special_place` for `special`, `other` if none has it.
/// n >= 1.
void launch_slice_ids(std::int64_t* places, const std::int64_t* ids, std::int64_t n,
                      const PlacedRange* ranges, int count, std::int64_t special,
                      std::int64_t special_place, std::int64_t other, cudaStream_t stream);

/// Scratch memory of the two calls below.
std::size_t ids_workspace(std::int64_t n);
/// found[0], found[1] = index and value of the first id outside [0, limit) that is not `*allowed`,
/// if that is given; -1 and 0 without one.
void launch_first_id_outside(std::int64_t* found, const std::int64_t* ids, std::int64_t n,
                             std::int64_t limit, const std::int64_t* allowed, void* workspace,
                             cudaStream_t stream);
/// *count = how many of the ids are `id`.
void launch_count_ids(std::int64_t* count, const std::int64_t* ids, std::int64_t n, std::int64_t id,
                      void* workspace, cudaStream_t stream);

}  // namespace meshloom::kernels::cuda
