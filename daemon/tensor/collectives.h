// SPDX-License-Identifier: Apache-2.0
// Collectives: what distributed implementations of ops exchange with other ranks.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "daemon/tensor/tensor.h"
#include "planner/estimate/collective_bytes.h"
#include "planner/placement.h"

namespace meshloom {

/// PendingTensor is a tensor whose values are still on their way from other ranks.
class PendingTensor {
 public:
  virtual ~PendingTensor() = default;
  /// Moves data; true if wait() will not wait.
  virtual bool poll() = 0;
  /// Waits for the values. Called once; a tensor that is dropped before poisons its group.
  virtual Tensor wait() = 0;
};

using PendingTensorPtr = std::unique_ptr<PendingTensor>;

/// ExposedTensors holds tensors of the ranks that the others read where they lie, one collective.
/// Dropped before close() it poisons its group.
class ExposedTensors {
 public:
  virtual ~ExposedTensors() = default;
  /// Returns the tensors of another rank, in the order in which it gave them. They may be read
  /// until release(), and not written. Waits for that rank alone.
  virtual std::vector<Tensor> of(int rank) = 0;
  /// This rank reads no more.
  virtual void release() = 0;
  /// Releases, and waits until nobody reads those of this rank, which may then change.
  virtual void close() = 0;
};

/// It is implemented in daemon/dtensor; lives as long as the layout engine, so that backward may
/// use it too. Each call concerns the ranks of the mesh that differ along `mesh_dims` only. All of
/// them make it, in the same order. Ranks are counted in row-major order of those dims. Each call
/// is one collective, is in flight when it returns, and records no gradient.
class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual int size(const std::vector<int>& mesh_dims) const = 0;
  /// Returns the place of this rank, from 0.
  virtual int rank(const std::vector<int>& mesh_dims) const = 0;

  /// Returns the x of every rank, stacked in a new first dim in rank order. x has one shape on all
  /// of them.
  virtual PendingTensorPtr all_gather(const Tensor& x, const std::vector<int>& mesh_dims) = 0;
  /// Returns the sum, maximum or minimum over the ranks, in memory of its own; sums run in rank
  /// order in float32 (float64 for float64). x has one shape on all ranks. Throws InvalidArgument
  /// for kAvg.
  virtual PendingTensorPtr all_reduce(const Tensor& x, planner::PartialOp op,
                                      const std::vector<int>& mesh_dims) = 0;
  /// Sends x to rank `to` and gives what rank `from` sends, of shape `received` and x's dtype. The
  /// ranks agree on who sends to whom, and on the shapes. Sending to itself costs a copy.
  virtual PendingTensorPtr send_recv(const Tensor& x, int to, int from, const Shape& received,
                                     const std::vector<int>& mesh_dims) = 0;
  /// Sends the first sent[0] elements of x, which has one dim, to rank 0, the next sent[1] to rank
  /// 1 and so on, and gives what the ranks send, received[p] elements of rank p one after the
  /// other. The ranks agree on the numbers, which may be 0.
  virtual PendingTensorPtr all_to_all(const Tensor& x, std::span<const std::int64_t> sent,
                                      std::span<const std::int64_t> received,
                                      const std::vector<int>& mesh_dims) = 0;

  /// Returns x, or a copy that peers can read where they lie: expose() copies nothing then.
  /// Concerns this rank alone.
  virtual Tensor exposable(const Tensor& x, const std::vector<int>& mesh_dims) = 0;
  /// Shows the other ranks some tensors, on each of them as many of one dtype, which stay as they
  /// are until close(). It stands for an all_gather or an all_to_all in which this rank sends
  /// `sent` elements, and is counted so. Null on all ranks if they do not share memory.
  virtual std::unique_ptr<ExposedTensors> expose(std::span<const Tensor> tensors,
                                                 planner::CollectiveKind stands_for,
                                                 std::int64_t sent,
                                                 const std::vector<int>& mesh_dims) = 0;
};

}  // namespace meshloom
