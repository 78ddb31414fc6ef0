// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "planner/redistribute/search.h"
#include "planner/redistribute/search_bound.h"
#include "planner/redistribute/search_graph.h"
#include "planner/redistribute/search_moves.h"

namespace meshloom::planner {
namespace {

/// From which layouts the exchanges of a group were visited. An exchange costs by what the ranks
/// hold before and after, so that a way to the same base is of no use if another one was at
/// least as cheap for the smallest and for the largest result.
class VisitedExchanges {
 public:
  /// True if these exchanges are new or could be cheaper than before: `before` and `spent` are of
  /// the layout that they start from.
  bool add(const LayoutState& base, unsigned mask, double low, double high) {
    std::uint64_t key = base.key;
    for (int m = 0; mask >> m != 0; ++m)
      if ((mask >> m & 1U) != 0) key |= kTaken << (kBits * m);
    bool added = false;
    const int at = table_.find_or_add(key, static_cast<int>(visits_.size()), added);
    if (!added) {
      int last = at;
      for (int i = at; i >= 0; i = visits_[static_cast<std::size_t>(i)].next) {
        const Visit& visit = visits_[static_cast<std::size_t>(i)];
        if (visit.low <= low && visit.high <= high) return false;
        last = i;
      }
      visits_[static_cast<std::size_t>(last)].next = static_cast<int>(visits_.size());
    }
    visits_.push_back({low, high, -1});
    return true;
  }

 private:
  // What no hold is, in the bits that a key has for a mesh dim.
  static constexpr std::uint64_t kTaken = 15;
  static constexpr int kBits = LayoutState::kBitsPerDim;

  struct Visit {
    double low, high;
    int next;
  };

  KeyTable table_;
  std::vector<Visit> visits_;
};

/// All moves, in seconds.
class ByteProblem {
 public:
  ByteProblem(const SearchSpace& space, const StepCost& cost)
      : space_(space), cost_(cost), bound_(space, cost) {}

  template <typename Reach>
  void expand(const LayoutState& state, double spent, const double& limit, const Reach& reach) {
    Visitor<Reach> visitor{*this, state, space_.local_elements(state), spent, limit, reach};
    SearchMoves(space_, visitor).visit(state);
  }

  double bound(const LayoutState& state) const { return bound_(state); }

 private:
  template <typename Reach>
  struct Visitor {
    ByteProblem& problem;
    const LayoutState& from;
    double elements, spent;
    const double& limit;
    const Reach& reach;
    double exchanged = 0.0;  ///< spent behind the exchange that is visited, at least

    void move(StepKind kind, const DimList& dims, const LayoutState& next) {
      const double result = problem.space_.local_elements(next);
      reach(kind, dims, next, problem.cost_.seconds(kind, dims, from, elements, next, result));
    }
    bool exchange(const LayoutState& base, unsigned mask) {
      exchanged = spent + problem.cost_.least_seconds(StepKind::kAllToAll, mask, elements, 0.0);
      if (!promises(base, mask)) return false;
      const StepCost::Exchange rate = problem.cost_.exchange(mask);
      const double low = spent + rate.each * elements;
      return problem.visited_.add(base, mask, low, low + rate.larger * elements);
    }
    bool promises(const LayoutState& state, unsigned left) const {
      return exchanged + problem.bound_.with_shards(state, left) <= limit;
    }
  };

  const SearchSpace& space_;
  const StepCost& cost_;
  ByteBound bound_;
  VisitedExchanges visited_;
};

}  // namespace

std::vector<Move> cheapest_byte_moves(const SearchSpace& space, const StepCost& cost) {
  double limit = std::numeric_limits<double>::infinity();
  // What the greedy planner finds is a path here too: nothing dearer need be looked at.
  if (greedy_applies(space)) {
    const std::vector<Move> moves = greedy_moves(space);
    double seconds = 0.0;
    const LayoutState* state = &space.start();
    for (const Move& move : moves) {
      seconds += cost.seconds(*state, move);
      state = &move.next;
    }
    limit = seconds * (1.0 + 1e-9);
  }
  ByteProblem problem(space, cost);
  return AStar(space, problem, limit).run();
}

}  // namespace meshloom::planner
