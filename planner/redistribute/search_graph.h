// SPDX-License-Identifier: Apache-2.0
// A* over layouts that are made as they are reached.
//
// Hart, Nilsson, Raphael: A Formal Basis for the Heuristic Determination of Minimum Cost Paths,
// 1968.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/hash.h"
#include "planner/redistribute/search_space.h"

namespace meshloom::planner {

/// KeyTable finds places by 64-bit key: open addressing, at most half full.
class KeyTable {
 public:
  KeyTable() : slots_(256, Slot{}) {}

  /// Returns the place of `key`, or where it now will be: `next`.
  int find_or_add(std::uint64_t key, int next, bool& added) {
    if (static_cast<std::size_t>(used_) * 2 >= slots_.size()) grow();
    Slot& slot = slots_[probe(slots_, key)];
    added = slot.place < 0;
    if (added) {
      slot = {key, next};
      ++used_;
    }
    return slot.place;
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    int place = -1;
  };

  static std::size_t probe(const std::vector<Slot>& slots, std::uint64_t key) {
    const std::size_t mask = slots.size() - 1;
    std::size_t at = (hash_mix(0, key) >> 32) & mask;
    while (slots[at].place >= 0 && slots[at].key != key) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    std::vector<Slot> wider(slots_.size() * 2, Slot{});
    for (const Slot& slot : slots_)
      if (slot.place >= 0) wider[probe(wider, slot.key)] = slot;
    slots_ = std::move(wider);
  }

  std::vector<Slot> slots_;
  int used_ = 0;
};

/// `Problem` offers
/// - double bound(state): a consistent lower bound of what is left,
/// - expand(state, spent, limit, reach): calls reach(kind, dims, next, cost) for every move behind
///   which no more than `limit` is spent in the end; the limit sinks while moves are reached.
/// Nothing that costs more than `limit` is looked at.
template <typename Problem>
class AStar {
 public:
  AStar(const SearchSpace& space, Problem& problem, double limit)
      : space_(space), problem_(problem), limit_(limit) {}

  std::vector<Move> run() {
    add(space_.start());
    nodes_[0].cost = 0.0;
    queue_.push_back({nodes_[0].bound, 0});
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end());
      const int at = queue_.back().node;
      queue_.pop_back();
      Node& node = nodes_[static_cast<std::size_t>(at)];
      if (node.closed) continue;
      node.closed = true;
      if (node.key == space_.goal().key) return path_to(at);
      // These are copies because `nodes_` grows while moves are reached.
      const double spent = node.cost;
      const LayoutState state = LayoutState::from_key(node.key, space_.dims());
      problem_.expand(state, spent, limit_,
                      [&](StepKind kind, const DimList& dims, const LayoutState& next,
                          double cost) { reach(next, spent + cost, at, kind, dims); });
    }
    throw InternalError(fmt::format("redistribute: no way from {} to {}", to_string(*space_.from()),
                                    to_string(*space_.to())));
  }

 private:
  // Sums in another order must not look cheaper.
  static constexpr double kSlack = 1e-12;

  struct Node {
    std::uint64_t key = 0;
    double cost = std::numeric_limits<double>::infinity();
    double bound = 0.0;  ///< lower bound of what is left
    int parent = -1;
    StepKind kind = StepKind::kSlice;
    bool closed = false;
    DimList dims;
  };

  struct QueueEntry {
    double estimate;
    int node;
    /// Ties go to the older node, so that a plan depends on the layouts alone.
    bool operator<(const QueueEntry& other) const {
      return estimate != other.estimate ? estimate > other.estimate : node > other.node;
    }
  };

  int add(const LayoutState& state) {
    bool added = false;
    const int at = table_.find_or_add(state.key, static_cast<int>(nodes_.size()), added);
    if (added) {
      Node& node = nodes_.emplace_back();
      node.key = state.key;
      node.bound = problem_.bound(state);
    }
    return at;
  }

  void reach(const LayoutState& state, double cost, int parent, StepKind kind,
             const DimList& dims) {
    if (cost > limit_) return;
    const int at = add(state);
    Node& node = nodes_[static_cast<std::size_t>(at)];
    if (node.closed || cost + kSlack * cost >= node.cost) return;
    if (cost + node.bound > limit_) return;
    if (state.key == space_.goal().key) limit_ = cost;
    node.cost = cost;
    node.parent = parent;
    node.kind = kind;
    node.dims = dims;
    queue_.push_back({cost + node.bound, at});
    std::push_heap(queue_.begin(), queue_.end());
  }

  std::vector<Move> path_to(int at) const {
    std::vector<Move> path;
    for (; nodes_[static_cast<std::size_t>(at)].parent >= 0;
         at = nodes_[static_cast<std::size_t>(at)].parent) {
      const Node& node = nodes_[static_cast<std::size_t>(at)];
      path.push_back({node.kind, node.dims, LayoutState::from_key(node.key, space_.dims())});
    }
    std::reverse(path.begin(), path.end());
    return path;
  }

  const SearchSpace& space_;
  Problem& problem_;
  double limit_;
  KeyTable table_;
  std::vector<Node> nodes_;
  std::vector<QueueEntry> queue_;
};

}  // namespace meshloom::planner
