// SPDX-License-Identifier: Apache-2.0
// What the exchanges of keys and of their gradients have in common: the members of a plan, who asks
// whom for what, and where it lies.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "daemon/parallel/context_parallel/key_bundle.h"

namespace meshloom::parallel {

/// Members makes the calls among the members of a plan, who are some of the ranks along its mesh
/// dims. Plan and collectives outlive this.
class Members {
 public:
  Members(const SequencePlan& plan, Collectives& collectives)
      : plan_(plan), collectives_(collectives) {}

  int count() const { return static_cast<int>(plan_.members.size()); }
  int self() const { return plan_.member; }
  int rank_of(int member) const { return plan_.members[static_cast<std::size_t>(member)]; }
  /// Returns the member that is `places` before this member in the ring, or behind it if negative.
  int before(int places) const { return ((self() - places) % count() + count()) % count(); }

  /// Sends pieces of x to each member, one after the other, and gets those of each member.
  PendingTensorPtr exchange(const Tensor& x, const std::vector<std::int64_t>& sent,
                            const std::vector<std::int64_t>& received) const;
  /// Sends all of x to the next member; the previous one sends `received` elements.
  PendingTensorPtr pass_on(const Tensor& x, std::int64_t received) const;
  PendingTensorPtr all_gather(const Tensor& x) const {
    return collectives_.all_gather(x, plan_.mesh_dims);
  }
  std::unique_ptr<ExposedTensors> expose(std::span<const Tensor> tensors,
                                         planner::CollectiveKind stands_for,
                                         std::int64_t sent) const {
    return collectives_.expose(tensors, stands_for, sent, plan_.mesh_dims);
  }

 private:
  std::vector<std::int64_t> by_rank(const std::vector<std::int64_t>& counts) const;

  const SequencePlan& plan_;
  Collectives& collectives_;
};

/// ExchangePart is one attention call as its exchanges see it. Sizes are in elements of keys and
/// values together.
struct ExchangePart {
  const SequencePlan& plan;
  Members members;
  Tensor k, v;
  KeySizes sizes;

  ExchangePart(const SequencePlan& p, Collectives& collectives, const Tensor& keys,
               const Tensor& values)
      : plan(p), members(p, collectives), k(keys), v(values), sizes(keys, values) {}

  /// Returns the source of a step of the schedule.
  int source(int step) const { return members.before(step); }
  /// Returns all keys of a member.
  KeyBundle bundle_of(int member) const;
  /// Returns the keys of a step that queries here see.
  KeyBundle seen_in(int step) const;
  /// Returns those of this member's keys that the queries of `member` see.
  KeyBundle requested_by(int member) const;
  /// Returns the sizes of what the other members want of this one, by member.
  std::vector<std::int64_t> requested_sizes() const;
  /// Returns the most elements that a member has.
  std::int64_t longest() const;
  /// Returns memory that peers can read.
  Tensor flat(std::int64_t numel, DType dtype) const;
  /// This member's own keys in a flat tensor of at least `numel` elements.
  Tensor packed(std::int64_t numel) const;

 private:
  KeyBundle bundle(const std::function<planner::IndexRanges(const RowGroup&)>& keys_of) const;
};

/// The bundles of the steps lie at these places in one flat tensor: by source, in rank order. The
/// own one is empty.
class StepPlaces {
 public:
  explicit StepPlaces(const ExchangePart& part);

  const std::vector<std::int64_t>& sizes() const { return sizes_; }
  std::int64_t first(int source) const { return first_[static_cast<std::size_t>(source)]; }
  std::int64_t numel() const { return numel_; }

 private:
  std::vector<std::int64_t> sizes_, first_;
  std::int64_t numel_ = 0;
};

std::int64_t sum_of(const std::vector<std::int64_t>& sizes);

}  // namespace meshloom::parallel
