// SPDX-License-Identifier: Apache-2.0
// HeadExchange: neighbouring ranks exchange a part of the sequence for a part of the heads.
//
// Source: Jacobs et al., "DeepSpeed Ulysses", 2023; with keys travelling between the neighbourhoods
// it is the two-dimensional scheme of Fang and Zhao, "USP", 2024.
#pragma once

#include <vector>

#include "daemon/parallel/context_parallel/sequence_plan.h"
#include "daemon/tensor/tensor.h"
#include "planner/attention/head_lists.h"

namespace meshloom::parallel {

using planner::HeadLists;

/// Every rank along the plan's mesh dims makes the same calls in the same order; each is one
/// all_to_all.
class HeadExchange {
 public:
  /// Plan and collectives outlive this.
  HeadExchange(const SequencePlan& plan, Collectives& collectives)
      : plan_(plan), collectives_(collectives) {}

  /// Goes from x [B,H,n,E], this rank's places, to [B,h,N,E]: the heads of this rank, h of them, at
  /// the places of all neighbours in rank order. `places`: n of every rank.
  Tensor to_heads(const Tensor& x, const HeadLists& lists,
                  const std::vector<std::int64_t>& places) const;
  /// Goes the way back, to [B,heads,n,E]: where several ranks have a head, their values are added
  /// in rank order.
  Tensor to_places(const Tensor& y, const HeadLists& lists, const std::vector<std::int64_t>& places,
                   std::int64_t heads) const;

 private:
  /// Returns the place of this rank among its neighbours.
  std::size_t own() const { return static_cast<std::size_t>(plan_.rank % plan_.neighbours); }

  const SequencePlan& plan_;
  Collectives& collectives_;
};

}  // namespace meshloom::parallel
