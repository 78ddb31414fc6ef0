// SPDX-License-Identifier: Apache-2.0
// How gradients of keys and values come back to the rank that has the keys.
#pragma once

#include <memory>
#include <vector>

#include "daemon/parallel/context_parallel/key_bundle.h"
#include "planner/attention/rotate.h"

namespace meshloom::parallel {

/// KeyGrads holds the gradients of keys [B,Hkv,n,D] and of values [B,Hkv,n,Dv], in float32.
struct KeyGrads {
  Tensor dk, dv;
};

/// Moves gradients of keys and values to their owners, who add them up in a fixed order.
class GradientReturn {
 public:
  virtual ~GradientReturn() = default;
  /// Returns zeros in float32 with the shapes of the blocks of step `step`, to add to.
  virtual std::vector<KeyBlock> open(int step) = 0;
  /// Says that the step that was opened last is complete.
  virtual void close() = 0;
  /// Waits, and returns the gradients of this rank's keys and values.
  virtual KeyGrads finish() = 0;
};

/// For kAllGather and kAllToAll the sums travel round the ring, one all_to_all a step: the order of
/// a sum is that of the ring, its owner first. For kPull there is one all_to_all, and owners add in
/// rank order; where the ranks share memory they read the sums of the others in place.
std::unique_ptr<GradientReturn> return_gradients(planner::Rotate rotate, const SequencePlan& plan,
                                                 Collectives& collectives, const Tensor& k,
                                                 const Tensor& v);

}  // namespace meshloom::parallel
