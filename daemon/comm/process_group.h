// SPDX-License-Identifier: Apache-2.0
// ProcessGroup: collectives on views among an ordered set of ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "daemon/comm/work.h"
#include "kernels/base/parallel_for.h"
#include "kernels/base/tensor_view.h"

namespace meshloom::comm {

enum class ReduceOp : std::uint8_t { kSum, kMax, kMin };

/// Raised by anyone who knows that the other ranks will not come; checked by every poll.
struct AbortFlag {
  std::atomic<bool> raised{false};
};

struct GroupOptions {
  std::string name = "world";
  std::chrono::milliseconds timeout{100'000};  ///< for each collective
  const AbortFlag* abort = nullptr;
  Threads threads;  ///< for local sums
};

/// What a group has done, by collective: for metrics and the conformance runner's counts.
struct CommCounter {
  std::uint64_t calls = 0;
  std::uint64_t bytes_sent = 0;
};

/// Every rank of the group calls the same collectives in the same order with matching shapes (sizes of a
/// rank's own part may differ where stated). Views are contiguous. Calls are asynchronous. Reductions add
/// in rank order in float32 (float64 for float64), whatever the number of collectives in flight or how
/// buffers are cut, so results are bitwise reproducible. After an error the group is poisoned: further calls
/// throw FailedPrecondition.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual const std::string& name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// In place.
  virtual WorkPtr all_reduce(const TensorView& data, ReduceOp op) = 0;
  /// outputs[r] receives rank r's input; sizes may differ between ranks and be 0. outputs[rank] may be input.
  virtual WorkPtr all_gather(std::span<const TensorView> outputs, const TensorView& input) = 0;
  /// inputs[r] is this rank's contribution to rank r; output = the sum over ranks of inputs[rank].
  virtual WorkPtr reduce_scatter(const TensorView& output, std::span<const TensorView> inputs,
                                 ReduceOp op) = 0;
  /// inputs[r] goes to rank r, outputs[r] comes from it; sizes agree pairwise.
  virtual WorkPtr all_to_all(std::span<const TensorView> outputs, std::span<const TensorView> inputs) = 0;
  virtual WorkPtr broadcast(const TensorView& data, int root) = 0;
  virtual WorkPtr send(const TensorView& data, int destination, int tag) = 0;
  virtual WorkPtr recv(const TensorView& data, int source, int tag) = 0;
  virtual WorkPtr barrier() = 0;

  virtual CommCounter counter(const std::string& collective) const = 0;
  virtual void reset_counters() = 0;
};

}  // namespace meshloom::comm
