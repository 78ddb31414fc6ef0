// SPDX-License-Identifier: Apache-2.0
// How keys and values come to the ranks whose queries see them, and their gradients back.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "daemon/parallel/context_parallel/key_bundle.h"
#include "planner/attention/rotate.h"

namespace meshloom::parallel {

/// Moves the keys and values of one attention call. All members of the plan make one and take its
/// steps in order; what is computed between two steps overlaps what is under way.
class KeyExchange {
 public:
  virtual ~KeyExchange() = default;
  /// Waits for the keys of step `step` of the schedule: one block per row group.
  virtual std::vector<KeyBlock> take(int step) = 0;
};

/// Moves gradients of keys and values to their owners, who add them up in a fixed order.
class GradientReturn {
 public:
  virtual ~GradientReturn() = default;
  /// Zeros in float32 with the shapes of the blocks of step `step`, to add to.
  virtual std::vector<KeyBlock> open(int step) = 0;
  /// What was opened last is complete.
  virtual void close() = 0;
  /// Waits; the gradients of this rank's keys and values, in the order of the groups.
  virtual std::vector<KeyBlock> finish() = 0;
};

/// `k` [B,Hkv,n,D] and `v` [B,Hkv,n,Dv] are this rank's and outlive the exchange, as the plan does.
/// kAllGather: one all_gather. kAllToAll: each member passes on what it got, one all_to_all a step.
/// kPull: one all_to_all, in which every member gets those keys alone that its queries see. With
/// kAllGather the members must be all ranks along the mesh dims.
std::unique_ptr<KeyExchange> exchange_keys(planner::Rotate rotate, const SequencePlan& plan,
                                           Collectives& collectives, const Tensor& k,
                                           const Tensor& v);

/// For kAllGather and kAllToAll the sums travel round the ring, one all_to_all a step: the order of
/// a sum is that of the ring, its owner first. For kPull there is one all_to_all, and owners add in
/// rank order.
std::unique_ptr<GradientReturn> return_gradients(planner::Rotate rotate, const SequencePlan& plan,
                                                 Collectives& collectives, const Tensor& k,
                                                 const Tensor& v);

}  // namespace meshloom::parallel
