// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/search.h"

#include <algorithm>
#include <limits>

#include "kernels/base/error.h"
#include "planner/redistribute/greedy.h"
#include "planner/redistribute/transitions.h"
#include "planner/redistribute/wide_moves.h"

namespace meshloom::planner {
namespace {

// Makes the shorter of equally cheap unit plans win: far fewer than 1000 steps.
constexpr double kUnitStep = 1e-3;
// Sums in another order must not look cheaper.
constexpr double kSlack = 1e-12;

/// Places of nodes by state key: open addressing, grown to at most half full.
class NodeTable {
 public:
  NodeTable() : slots_(256, Slot{}) {}

  /// The place of `key`, or where it now will be: `next`.
  int find_or_add(std::uint64_t key, int next, bool& added) {
    if (static_cast<std::size_t>(used_) * 2 >= slots_.size()) grow();
    Slot& slot = slots_[probe(slots_, key)];
    added = slot.node < 0;
    if (added) {
      slot = {key, next};
      ++used_;
    }
    return slot.node;
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    int node = -1;
  };

  static std::size_t probe(const std::vector<Slot>& slots, std::uint64_t key) {
    const std::size_t mask = slots.size() - 1;
    std::size_t at = (key * 0x9e3779b97f4a7c15ULL >> 32) & mask;
    while (slots[at].node >= 0 && slots[at].key != key) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    std::vector<Slot> wider(slots_.size() * 2, Slot{});
    for (const Slot& slot : slots_)
      if (slot.node >= 0) wider[probe(wider, slot.key)] = slot;
    slots_ = std::move(wider);
  }

  std::vector<Slot> slots_;
  int used_ = 0;
};

struct Node {
  std::uint64_t key = 0;
  double cost = std::numeric_limits<double>::infinity();
  double bound = 0.0;  ///< lower bound of what is left
  int parent = -1;
  StepKind kind = StepKind::kSlice;
  DimList dims;
  bool closed = false;
};

struct QueueEntry {
  double estimate;
  int node;
  /// Ties go to the older node, so that a plan depends on the layouts alone.
  bool operator<(const QueueEntry& other) const {
    return estimate != other.estimate ? estimate > other.estimate : node > other.node;
  }
};

/// `Problem` offers expand(state, moves), a function of a move's cost for a state, and
/// bound(state).
template <typename Problem>
class AStar {
 public:
  AStar(const SearchSpace& space, const Problem& problem, double limit)
      : space_(space), problem_(problem), limit_(limit) {}

  std::vector<Move> run() {
    const std::uint64_t goal = space_.goal().key(space_.dims());
    reach(space_.start(), 0.0, -1, nullptr);
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end());
      const int at = queue_.back().node;
      queue_.pop_back();
      if (nodes_[static_cast<std::size_t>(at)].closed) continue;
      nodes_[static_cast<std::size_t>(at)].closed = true;
      if (nodes_[static_cast<std::size_t>(at)].key == goal) return path_to(at);
      expand(at);
    }
    throw InternalError(fmt::format("redistribute: no way from {} to {}", to_string(*space_.from()),
                                    to_string(*space_.to())));
  }

 private:
  void expand(int at) {
    const Node node = nodes_[static_cast<std::size_t>(at)];
    const LayoutState state = LayoutState::from_key(node.key, space_.dims());
    moves_.clear();
    problem_.expand(state, moves_);
    const auto cost_of = problem_.costs_from(state);
    for (const Move& move : moves_) reach(move.next, node.cost + cost_of(move), at, &move);
  }

  void reach(const LayoutState& state, double cost, int parent, const Move* move) {
    if (cost > limit_) return;
    const std::uint64_t key = state.key(space_.dims());
    bool added = false;
    const int at = table_.find_or_add(key, static_cast<int>(nodes_.size()), added);
    if (added) {
      nodes_.emplace_back();
      nodes_.back().key = key;
      nodes_.back().bound = problem_.bound(state);
    }
    Node& node = nodes_[static_cast<std::size_t>(at)];
    if (node.closed || cost + kSlack * cost >= node.cost) return;
    if (cost + node.bound > limit_) return;
    node.cost = cost;
    node.parent = parent;
    if (move != nullptr) {
      node.kind = move->kind;
      node.dims = move->dims;
    }
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
  const Problem& problem_;
  double limit_;
  NodeTable table_;
  std::vector<Node> nodes_;
  std::vector<QueueEntry> queue_;
  std::vector<Move> moves_;
};

/// True where the cuts of `tensor_dim` up to and including `place` are those of the goal.
bool in_place(const SearchSpace& space, const LayoutState& state, int tensor_dim, int place) {
  const auto d = static_cast<std::size_t>(tensor_dim);
  const LayoutState& goal = space.goal();
  if (goal.cuts[d] <= place) return false;
  for (std::size_t c = 0; c <= static_cast<std::size_t>(place); ++c) {
    const std::size_t m = state.cutter[d][c];
    if (goal.cutter[d][c] != m || goal.order[m] != state.order[m]) return false;
  }
  return true;
}

/// PyTorch's transitions in unit costs.
class UnitProblem {
 public:
  explicit UnitProblem(const SearchSpace& space) : space_(space), allowed_(useful_cuts(space)) {}

  void expand(const LayoutState& state, std::vector<Move>& moves) const {
    append_one_step_moves(space_, allowed_, state, moves);
  }

  auto costs_from(const LayoutState&) const {
    return [](const Move& move) { return unit_cost(move.kind) + kUnitStep; };
  }

  /// A step moves one mesh dim. P -> R costs at least 4 in all, P -> S and S -> R 2, S -> S 1, and
  /// a shard that has to leave its place and come back 2.
  double bound(const LayoutState& state) const {
    double bound = 0.0;
    for (int m = 0; m < space_.dims(); ++m) {
      const auto i = static_cast<std::size_t>(m);
      const HoldCode at = state.hold[i], wanted = space_.goal().hold[i];
      if (is_partial_code(at) && !is_partial_code(wanted))
        bound += is_shard_code(wanted) ? 2.0 : 4.0;
      else if (is_shard_code(at) && wanted == kHoldReplicate)
        bound += 2.0;
      else if (is_shard_code(at) && is_shard_code(wanted) && at != wanted)
        bound += 1.0;
    }
    for (int d = 0; d < space_.shape().size(); ++d) {
      const auto i = static_cast<std::size_t>(d);
      for (int c = 0; c < state.cuts[i]; ++c) {
        const int m = state.cutter[i][static_cast<std::size_t>(c)];
        if (space_.goal().hold[static_cast<std::size_t>(m)] == hold_shard(d) &&
            !in_place(space_, state, d, c))
          bound += 2.0;
      }
    }
    return bound;
  }

 private:
  /// The tensor dims that either end cuts, and as many others to park on as there are mesh dims:
  /// more are the same again.
  static AllowedCuts useful_cuts(const SearchSpace& space) {
    unsigned mask = 0;
    int spare = space.dims();
    for (int d = 0; d < space.shape().size(); ++d) {
      const auto i = static_cast<std::size_t>(d);
      if (space.start().cuts[i] > 0 || space.goal().cuts[i] > 0 || spare-- > 0) mask |= 1U << d;
    }
    AllowedCuts allowed{};
    allowed.fill(static_cast<std::uint8_t>(mask));
    return allowed;
  }

  const SearchSpace& space_;
  AllowedCuts allowed_;
};

/// All moves, in seconds.
class ByteProblem {
 public:
  ByteProblem(const SearchSpace& space, const StepCost& cost)
      : space_(space),
        cost_(cost),
        allowed_(byte_search_cuts(space)),
        goal_elements_(space.local_elements(space.goal())) {
    for (const HoldCode code : space.goal().hold)
      zeros_added_ = zeros_added_ || is_partial_code(code);
  }

  void expand(const LayoutState& state, std::vector<Move>& moves) const {
    append_one_step_moves(space_, allowed_, state, moves);
    append_wide_moves(space_, allowed_, state, moves);
  }

  auto costs_from(const LayoutState& state) const {
    return [this, &state, elements = space_.local_elements(state)](const Move& move) {
      return cost_.seconds(state, elements, move);
    };
  }

  /// One collective where something must be reduced and one where shards must move; and local
  /// tensors grow by receiving only.
  double bound(const LayoutState& state) const {
    bool reduces = false, moves = false;
    for (int m = 0; m < space_.dims(); ++m) {
      const auto i = static_cast<std::size_t>(m);
      const HoldCode at = state.hold[i], wanted = space_.goal().hold[i];
      reduces = reduces || (is_partial_code(at) && !is_partial_code(wanted));
      moves = moves || (is_shard_code(at) && at != wanted && !is_partial_code(wanted));
    }
    for (int d = 0; d < space_.shape().size() && !moves; ++d) {
      const auto i = static_cast<std::size_t>(d);
      for (int c = 0; c < state.cuts[i] && !moves; ++c) {
        const int m = state.cutter[i][static_cast<std::size_t>(c)];
        moves = space_.goal().hold[static_cast<std::size_t>(m)] == hold_shard(d) &&
                !in_place(space_, state, d, c);
      }
    }
    double bound = ((reduces ? 1.0 : 0.0) + (moves ? 1.0 : 0.0)) * cost_.least_latency();
    if (moves && !zeros_added_)
      bound += std::max(0.0, goal_elements_ - space_.local_elements(state)) *
               cost_.least_element_seconds();
    return bound;
  }

 private:
  const SearchSpace& space_;
  const StepCost& cost_;
  AllowedCuts allowed_;
  double goal_elements_;
  bool zeros_added_ = false;  ///< S -> P fills up with zeros, which nobody sends
};

double seconds_of(const SearchSpace& space, const StepCost& cost, const std::vector<Move>& moves) {
  double seconds = 0.0;
  const LayoutState* state = &space.start();
  for (const Move& move : moves) {
    seconds += cost.seconds(*state, move);
    state = &move.next;
  }
  return seconds;
}

/// The first tensor dims that are long enough for all ranks, else the longest.
std::uint8_t parking_dims(const SearchSpace& space, int count) {
  unsigned mask = 0;
  int longest = -1;
  for (int d = 0; d < space.shape().size(); ++d) {
    if (space.shape()[d] >= space.mesh().size() && count-- > 0) mask |= 1U << d;
    if (longest < 0 || space.shape()[d] > space.shape()[longest]) longest = d;
  }
  if (mask == 0 && longest >= 0) mask = 1U << longest;
  return static_cast<std::uint8_t>(mask);
}

}  // namespace

AllowedCuts byte_search_cuts(const SearchSpace& space) {
  if (space.dims() <= 2) return all_cuts(space);
  const std::uint8_t parking = parking_dims(space, space.dims() == 3 ? 2 : 1);
  AllowedCuts allowed{};
  for (int m = 0; m < space.dims(); ++m) {
    const auto i = static_cast<std::size_t>(m);
    unsigned mask = parking;
    for (const HoldCode code : {space.start().hold[i], space.goal().hold[i]})
      if (is_shard_code(code)) mask |= 1U << shard_dim_of(code);
    allowed[i] = static_cast<std::uint8_t>(mask);
  }
  return allowed;
}

std::vector<Move> cheapest_unit_moves(const SearchSpace& space) {
  const UnitProblem problem(space);
  return AStar(space, problem, std::numeric_limits<double>::infinity()).run();
}

std::vector<Move> cheapest_byte_moves(const SearchSpace& space, const StepCost& cost) {
  double limit = std::numeric_limits<double>::infinity();
  // What the greedy planner finds is a path here too: nothing dearer need be looked at.
  if (greedy_applies(space)) limit = seconds_of(space, cost, greedy_moves(space)) * (1.0 + 1e-9);
  const ByteProblem problem(space, cost);
  return AStar(space, problem, limit).run();
}

}  // namespace meshloom::planner
