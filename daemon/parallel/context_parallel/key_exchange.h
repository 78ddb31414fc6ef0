// SPDX-License-Identifier: Apache-2.0
// How keys and values come to the ranks whose queries see them.
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
  /// Says that nothing that was taken is read any more.
  virtual void release() {}
  /// Waits until nobody reads this rank's keys any more.
  virtual void close() {}
};

/// `k` [B,Hkv,n,D] and `v` [B,Hkv,n,Dv] are this rank's and outlive the exchange, as the plan does.
/// kAllGather: one all_gather. kAllToAll: each member passes on what it got, one all_to_all a step.
/// kPull: one all_to_all, in which every member gets those keys alone that its queries see. With
/// kAllGather the members must be all ranks along the mesh dims. Where the ranks share memory,
/// kAllGather, of up to 8 members, and kPull read the keys of others in place
/// (Collectives::expose), all but those that a step sees in several pieces, which are put side by
/// side first. The bits are the same.
std::unique_ptr<KeyExchange> exchange_keys(planner::Rotate rotate, const SequencePlan& plan,
                                           Collectives& collectives, const Tensor& k,
                                           const Tensor& v);

}  // namespace meshloom::parallel
