// SPDX-License-Identifier: Apache-2.0
// Algorithms: how the collectives of one group are carried out, apart from all that groups do
// alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/comm/exposure.h"
#include "daemon/comm/signature.h"
#include "planner/communication_sizes.h"

namespace meshloom::comm {

/// Call is one call of a collective: its arguments, which were checked, and what its group adds.
struct Call {
  /// Kind, dtype, reduction and root of the call, and what the ranks have to agree on.
  Signature signature;
  /// These views have the order and sizes that ProcessGroup asks for; data that is changed in place
  /// is both. They are views of this call alone: an implementation copies what it needs later. The
  /// memory that they show stays until the collective is done.
  std::span<const TensorView> outputs, inputs;
  int peer = -1;          ///< of a send or receive
  int tag = 0;            ///< of a send or receive
  std::size_t bytes = 0;  ///< for the record
  /// An all_reduce goes by this algorithm. Ranks that differ are told apart by the bytes between
  /// two of them.
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kAuto;
  /// An exposure, whose views are `inputs`, tells the views of its peers here. `signature` has the
  /// kind that it is counted as.
  std::shared_ptr<ExposedViews> exposed = nullptr;
  /// The collective adds what it sends; counted when it is complete.
  std::uint64_t* bytes_sent = nullptr;
  std::uint64_t* bytes_staged = nullptr;  ///< likewise; see CommCounter
  /// In a step of a larger collective ranks compare this, and errors name it, in the place of
  /// `signature`, which tells what the step does and its number among the steps.
  std::optional<Signature> step_of = std::nullopt;

  const Signature& compared() const { return step_of ? *step_of : signature; }
  /// Tells whether, in an all_reduce among ranks that are equally far from each other, every rank
  /// sums all of it instead of a part for all.
  bool is_one_shot() const {
    if (algorithm != AllReduceAlgorithm::kAuto) return algorithm == AllReduceAlgorithm::kOneShot;
    return bytes <= static_cast<std::size_t>(planner::kOneShotBytes);
  }
};

/// Collective is a collective in flight: a state machine that never waits. Destroying one that is
/// not done gives it up.
class Collective {
 public:
  virtual ~Collective() = default;
  /// Moves on as far as it goes without waiting; true when done. Called after
  /// Algorithms::progress(). Throws SignatureDiffers if a peer is in another collective, CommError
  /// for what the layer below refuses.
  virtual bool advance() = 0;
  /// Grows whenever something arrived or left.
  virtual std::uint64_t progress() const = 0;
  /// Returns the ranks of the group it waits for.
  virtual std::vector<int> missing() const = 0;
  /// Returns false while it is this rank's turn: then time does not count for the deadline.
  virtual bool waits() const { return true; }
  /// Returns what else is known of a rank that it waits for, such as "whose process 123 is
  /// stopped"; empty if nothing is.
  virtual std::string about(int /*rank*/) const { return {}; }
};

/// A group needs an implementation of this in order to offer every collective. GroupState does the
/// rest for each implementation alike: it numbers and records calls, polls, ends waits at the
/// deadline, poisons the group after an error, counts, and takes part in recoveries. Used by the
/// rank's training thread alone.
class Algorithms {
 public:
  virtual ~Algorithms() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns what ProcessGroup::symmetric_memory is to return.
  virtual std::shared_ptr<SymmetricMemory> symmetric_memory() const { return nullptr; }
  /// Returns what ProcessGroup::hosts is to return.
  virtual std::string hosts() const { return {}; }

  /// Tells whether it carries out exposures of so many views; the same answer on all members.
  virtual bool exposes(std::size_t /*views*/) const { return false; }

  /// Makes the state machine of a call. Every member starts the same collectives in the same order,
  /// sends and receives aside; each compares the signature with a peer's before it uses the peer's
  /// data.
  virtual std::unique_ptr<Collective> start(const Call& call) = 0;
  /// Is called once before a round in which collectives advance: moves what they share.
  virtual void progress() = 0;

  /// Makes algorithms among some of these ranks, which cannot mix up their data with these;
  /// arguments as in ProcessGroup::split. `key` is the same on all members of a part and differs
  /// from call to call. Every rank calls it, right after a barrier.
  virtual std::unique_ptr<Algorithms> split(const std::vector<std::vector<int>>& parts,
                                            std::uint64_t key) = 0;
  /// Begins anew after a recovery, with no collective left: nothing that was sent before arrives
  /// any more. Every member calls it.
  virtual void renew() = 0;
  /// Collectives that were given up may still write to memory that they were lent: it is neither
  /// used again nor freed.
  virtual void abandon_memory() = 0;
};

}  // namespace meshloom::comm
