// SPDX-License-Identifier: Apache-2.0
// Checks of a collective's arguments, the same for every ProcessGroup. They throw InvalidArgument
// naming the collective and what was given.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "daemon/comm/group_device.h"
#include "daemon/comm/process_group.h"
#include "kernels/base/tensor_view.h"

namespace meshloom::comm {

/// CallBuffers makes the checks of the buffers of one call. The first of them says where all lie:
/// in host memory or in that of the group's device.
class CallBuffers {
 public:
  /// Both outlive it.
  CallBuffers(const char* collective, const std::optional<GroupDevice>& device)
      : collective_(collective), device_(device) {}

  /// Throws InvalidArgument unless the view is contiguous; `what` is its name in errors.
  void check_buffer(const TensorView& view, const char* what);
  /// Throws InvalidArgument unless there is one buffer per rank, all of `dtype`.
  void check_parts(std::span<const TensorView> parts, int size, DType dtype, const char* what);

 private:
  void check_memory(const Device& memory, const char* what);

  const char* collective_;
  const std::optional<GroupDevice>& device_;
  const char* first_ = nullptr;  ///< name of the buffer that was checked first
  Device memory_;                ///< where that lies
};

void check_same_size(const TensorView& a, const TensorView& b, const char* collective);
/// Throws Unimplemented if no group reduces the dtype, InvalidArgument if it has no such reduction.
void check_reducible(DType dtype, ReduceOp op, const char* collective);
void check_peer(const char* collective, int peer, int rank, int size, int tag);
/// Throws InvalidArgument unless the parts hold every rank of a group of `size` exactly once.
void check_partition(const std::vector<std::vector<int>>& parts, int size);

/// Returns the part that holds `rank`.
const std::vector<int>& part_of(const std::vector<std::vector<int>>& parts, int rank);
/// Copies host memory unless both are the same.
void copy_bytes(const TensorView& to, const TensorView& from);

}  // namespace meshloom::comm
