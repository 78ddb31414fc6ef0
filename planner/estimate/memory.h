// SPDX-License-Identifier: Apache-2.0
// What a rank needs at the fullest moment of a step, by use.
#pragma once

#include <cstdint>

#include "planner/estimate/local_model.h"

namespace meshloom::planner {

/// MemoryEstimate counts bytes on the fullest rank.
struct MemoryEstimate {
  std::int64_t parameters = 0;     ///< weights that computing reads, as far as they stay
  std::int64_t gradients = 0;      ///< float32, as far as they are there at the fullest moment
  std::int64_t optimizer = 0;      ///< moments, and float32 masters of bfloat16 weights
  std::int64_t activations = 0;    ///< kept for backward and in passing, where they are most
  std::int64_t gathered = 0;       ///< fully_shard: whole parameters and gradients in passing
  std::int64_t workspace = 0;      ///< scratch of kernels
  std::int64_t communication = 0;  ///< staging of collectives, workspaces of fused products
  std::int64_t process = 0;        ///< code, libraries, data in passing
  /// Tensors of context parallelism take this part of `communication`; on a device they lie in its
  /// memory.
  std::int64_t exchanged = 0;
  /// A rank on a device has so much pinned memory (staged_bytes), which is in no part above. 0: not
  /// asked for.
  std::int64_t staged = 0;

  std::int64_t total() const;
  /// Returns the bytes that the allocator of tensors hands out: all but `communication` and
  /// `process`.
  std::int64_t tensors() const { return total() - communication - process; }
};

MemoryEstimate estimate_memory(const LocalModel& local);

/// Returns an upper estimate of the pinned host memory of a rank that computes on a device, through
/// which its collectives go (daemon/comm/staging): blocks that hold the inputs and outputs of a
/// call whole, and stay. It takes the place of what ranks on a CPU stage.
std::int64_t staged_bytes(const LocalModel& local);

/// Returns the bytes of the workspace by which the ranks of tp exchange what products take along,
/// of a model with so many hidden channels; 0 if the plan fuses none. No product of a step needs
/// more.
std::int64_t fused_workspace_bytes(const MeshSizes& mesh, const ParallelPlan& plan,
                                   const Workload& work, std::int64_t hidden);

}  // namespace meshloom::planner
