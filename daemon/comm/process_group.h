// SPDX-License-Identifier: Apache-2.0
// ProcessGroup: collectives on views among an ordered set of ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/comm/failure.h"
#include "daemon/comm/group_device.h"
#include "daemon/comm/work.h"
#include "kernels/base/parallel_for.h"
#include "kernels/base/tensor_view.h"

namespace meshloom::comm {

class SymmetricMemory;

/// kAvg is the sum divided by the number of ranks before it is rounded, of floating dtypes alone.
enum class ReduceOp : std::uint8_t { kSum, kMax, kMin, kAvg, kProd };
/// Returns "sum", "max", "min", "avg" or "prod".
const char* reduce_op_name(ReduceOp op);

/// The algorithm says how an all_reduce goes. All give the same bits; kAuto takes what is faster
/// for the size.
enum class AllReduceAlgorithm : std::uint8_t {
  kAuto,
  kOneShot,  ///< every rank gets the data of all and sums by itself
  kTwoShot,  ///< every rank sums its part and gives it to all
};

/// It is raised by anyone who knows that the other ranks will not come; checked by every poll.
struct AbortFlag {
  std::atomic<bool> raised{false};
};

struct GroupOptions {
  std::string name = "world";
  std::chrono::milliseconds timeout{100'000};  ///< for each collective
  const AbortFlag* abort = nullptr;
  Threads threads;  ///< for local sums
  /// If there is none, calls show host memory alone. Every rank has one, or none has.
  std::optional<GroupDevice> device = std::nullopt;
};

/// Calls and bytes by collective (send and recv: "send_recv"), for metrics and conformance counts.
struct CommCounter {
  std::uint64_t calls = 0;
  std::uint64_t bytes_sent = 0;
  /// A rank counts the bytes here that it copied to and from staging memory: in collectives over
  /// symmetric memory, where 0 says that the tensors lie in it, and between a device and the host.
  std::uint64_t bytes_staged = 0;
};

/// Every rank of the group calls the same collectives in the same order with matching shapes (sizes
/// of a rank's own part may differ where stated). Views are contiguous, and those of a call lie all
/// in host memory or all in that of the group's device. Calls are asynchronous.
/// Reductions work in rank order in float32 (float64 for float64), whatever the number of
/// collectives in flight or how data is sliced, so results are bitwise reproducible. Over several
/// hosts, some of which have several ranks, each host is reduced in rank order, and then the hosts
/// in the order of their lowest ranks. After an error the group is poisoned: further calls throw
/// FailedPrecondition. Once a rank of the world has failed alone (see failure.h), waits and calls
/// throw PeerFailed until all have recovered. A call whose own arguments are wrong (views that are
/// not contiguous, other dtypes or sizes than stated, a root that is no rank) throws
/// InvalidArgument, and Unimplemented for a reduction of float8; then it has begun nothing.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual const std::string& name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Reduces `data` in place. Every rank names the same algorithm.
  virtual WorkPtr all_reduce(const TensorView& data, ReduceOp op,
                             AllReduceAlgorithm = AllReduceAlgorithm::kAuto) = 0;
  /// Gathers the inputs of all: outputs[r] receives rank r's input; sizes may differ between ranks
  /// and be 0. outputs[rank] may be input.
  virtual WorkPtr all_gather(std::span<const TensorView> outputs, const TensorView& input) = 0;
  /// Reduces and scatters: inputs[r] is this rank's contribution to rank r; output = the sum over
  /// ranks of inputs[rank].
  virtual WorkPtr reduce_scatter(const TensorView& output, std::span<const TensorView> inputs,
                                 ReduceOp op) = 0;
  /// Exchanges pieces: inputs[r] goes to rank r, outputs[r] comes from it; sizes agree pairwise.
  virtual WorkPtr all_to_all(std::span<const TensorView> outputs,
                             std::span<const TensorView> inputs) = 0;
  /// Does what all_to_all does, as one set of direct messages: counted and recorded as "send_recv",
  /// once.
  virtual WorkPtr send_recv(std::span<const TensorView> outputs,
                            std::span<const TensorView> inputs) = 0;
  /// Broadcasts in place: `data`, as large on every rank, is read on the root and written
  /// elsewhere.
  virtual WorkPtr broadcast(const TensorView& data, int root) = 0;
  /// Scatters the root's inputs: output receives the root's inputs[rank]; `inputs` is read on the
  /// root alone. output may be the root's own input.
  virtual WorkPtr scatter(const TensorView& output, std::span<const TensorView> inputs,
                          int root) = 0;
  /// Gathers on the root: outputs[r] on the root receives rank r's input; sizes may differ between
  /// ranks and be 0. `outputs` is read on the root alone. outputs[root] may be the root's own
  /// input.
  virtual WorkPtr gather(std::span<const TensorView> outputs, const TensorView& input,
                         int root) = 0;
  /// Both move one message between two ranks, which alone call them; a receive is as large as its
  /// send. Messages of two ranks with one tag, 0 .. 2^29 - 1, come in the order of their sends.
  /// Throws InvalidArgument for another tag and for a peer that is this rank or none of the group.
  virtual WorkPtr send(const TensorView& data, int destination, int tag) = 0;
  virtual WorkPtr recv(const TensorView& data, int source, int tag) = 0;
  /// Its Work is done once every rank has called it.
  virtual WorkPtr barrier() = 0;

  /// Makes a group of some of these ranks: parts[i] lists ranks of this group, and the caller gets
  /// the group of the part that holds it, its members in the order of the list. Every rank of this
  /// group calls it with the same parts (which hold each rank once), at a moment when none of its
  /// collectives is in flight.
  virtual std::unique_ptr<ProcessGroup> split(const std::vector<std::vector<int>>& parts,
                                              const std::string& name) = 0;

  /// Returns what this rank has counted since reset_counters(), of a collective by its name
  /// ("all_reduce"), or of all that were called. Zeros for a name that was not called.
  virtual CommCounter counter(const std::string& collective) const = 0;
  virtual std::map<std::string, CommCounter> counters() const = 0;
  virtual void reset_counters() = 0;
  /// Returns the last collectives of this group, oldest first, one line each: sequence number,
  /// name, bytes, state, times.
  virtual std::string flight_record() const = 0;

  /// Returns the domain by which all groups of this rank act when a rank fails alone; null for a
  /// group of one rank. Valid as long as this group.
  virtual FailureDomain* failures() { return nullptr; }

  /// Returns the device whose memory calls may show, as GroupOptions gave it.
  virtual std::optional<GroupDevice> device() const { return std::nullopt; }

  /// Returns the host memory of this rank in which data of this group's collectives is not copied;
  /// the same one for all groups of the rank. Null if the group has none, as one with a device.
  virtual std::shared_ptr<SymmetricMemory> symmetric_memory() { return nullptr; }

  /// Returns the facts that the bits of its sums depend on beside the order of its ranks: the host
  /// of each rank, and the version of the table of ways between hosts. Empty where sums are in rank
  /// order.
  virtual std::string hosts() const { return {}; }
};

/// Makes a group of this rank alone: every collective is done when it is issued, and costs a copy
/// where input and output differ.
std::unique_ptr<ProcessGroup> make_single_process_group(const GroupOptions& = {});

}  // namespace meshloom::comm
