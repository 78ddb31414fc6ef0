// SPDX-License-Identifier: Apache-2.0
// Checks of a collective's arguments, the same for every ProcessGroup. They throw InvalidArgument
// naming the collective and what was given.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/comm/process_group.h"
#include "kernels/base/tensor_view.h"

namespace meshloom::comm {

/// Contiguous and in the memory of `device`.
void check_buffer(const TensorView& view, const char* collective, const char* what,
                  const Device& device = kCpuDevice);
/// One buffer per rank, all of `dtype`.
void check_parts(std::span<const TensorView> parts, int size, DType dtype, const char* collective,
                 const char* what, const Device& device = kCpuDevice);
void check_same_size(const TensorView& a, const TensorView& b, const char* collective);
/// Throws Unimplemented if no group reduces the dtype, InvalidArgument if it has no such reduction.
void check_reducible(DType dtype, ReduceOp op, const char* collective);
void check_peer(const char* collective, int peer, int rank, int size, int tag);
/// Every rank of a group of `size` exactly once.
void check_partition(const std::vector<std::vector<int>>& parts, int size);

/// The part that holds `rank`.
const std::vector<int>& part_of(const std::vector<std::vector<int>>& parts, int rank);
/// Copies unless both are the same memory.
void copy_bytes(const TensorView& to, const TensorView& from);

}  // namespace meshloom::comm
