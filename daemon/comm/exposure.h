// SPDX-License-Identifier: Apache-2.0
// Exposure: views of every rank of a group, read by the others where they lie.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "daemon/comm/signature.h"
#include "daemon/comm/work.h"

namespace meshloom::comm {

/// An exposure is MPI's exposure and access epoch as one collective of the group: it has a number,
/// a deadline and a place in the flight record like the others. As a Work it is done once this rank
/// has released what it reads and every other rank what it reads of this one.
class Exposure : public Work {
 public:
  /// Returns the views of a rank, in the order in which it gave them, valid until release(). Waits
  /// for that rank alone; throws as Work::wait_host does.
  virtual std::span<const TensorView> of(int rank) = 0;
  /// This rank reads no more.
  virtual void release() = 0;
  /// Releases, and waits until no rank reads the views of this one, which may then be written over.
  void wait_host() override = 0;
};

/// Makes an exposure. Every rank of the group calls it with as many views, of any shapes and
/// strides, that stay as they are until the exposure is done. One whose extent does not lie in a
/// segment of the rank's SymmetricMemory must be contiguous; it is copied into one. It is counted
/// as a call of `kind`, an all_gather or all_to_all, in which this rank sends `bytes`. Null on all
/// ranks of a group that does not share memory, or where there are too many views for it.
std::unique_ptr<Exposure> expose(ProcessGroup& group, CollectiveKind kind,
                                 std::span<const TensorView> views, std::size_t bytes);

/// Returns whether peers can read the view where it lies: in a segment of this rank's
/// SymmetricMemory. It asks no other rank.
bool is_in_symmetric_memory(ProcessGroup& group, const TensorView& view);

/// An exposure's handle and the state machine behind it share these values.
struct ExposedViews {
  std::vector<std::vector<TensorView>> peers;  ///< by rank, this one too; empty: not there yet
  bool released = false;
};

}  // namespace meshloom::comm
