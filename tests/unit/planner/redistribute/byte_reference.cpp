// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/planner/redistribute/byte_reference.h"

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

namespace meshloom::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A sharding: the mesh dim and by which order.
using AxisSharding = std::pair<int, DimOrderChoice>;

/// A layout as lists: what every mesh dim holds, and by tensor dim the shardings.
struct Layout {
  std::vector<HoldCode> hold;
  std::vector<std::vector<AxisSharding>> stacks;
  LayoutState state;
};

class Layouts {
 public:
  explicit Layouts(const SearchSpace& space) : space_(space) {
    Layout empty;
    empty.hold.assign(static_cast<std::size_t>(space.dims()), kHoldReplicate);
    empty.stacks.resize(static_cast<std::size_t>(space.shape().size()));
    add(empty, 0);
  }

  std::vector<Layout> all;
  std::size_t index_of(const LayoutState& state) const { return places_.at(state.key); }

 private:
  /// All ways in which mesh dims from `m` on may hold the tensor.
  void add(const Layout& layout, int m) {
    if (m == space_.dims()) return finish(layout);
    const auto i = static_cast<std::size_t>(m);
    add(layout, m + 1);
    std::vector<HoldCode> partials;
    for (const HoldCode code : {space_.start().hold[i], space_.goal().hold[i]})
      if (is_partial_code(code) && (partials.empty() || partials[0] != code))
        partials.push_back(code);
    for (const HoldCode code : partials) {
      Layout next = layout;
      next.hold[i] = code;
      add(next, m + 1);
    }
    for (std::size_t d = 0; d < layout.stacks.size(); ++d)
      for (std::size_t place = 0; place <= layout.stacks[d].size(); ++place) {
        Layout next = layout;
        next.hold[i] = hold_shard(static_cast<int>(d));
        next.stacks[d].insert(next.stacks[d].begin() + static_cast<std::ptrdiff_t>(place),
                              {m, DimOrderChoice::kPlain});
        add(next, m + 1);
      }
  }

  /// With every dim order that a first sharding may have.
  void finish(const Layout& layout, std::size_t d = 0) {
    if (d == layout.stacks.size()) return keep(layout);
    finish(layout, d + 1);
    if (layout.stacks[d].empty() || !space_.has_dim_orders()) return;
    for (const DimOrderChoice order : {DimOrderChoice::kFrom, DimOrderChoice::kTo}) {
      if (!space_.offers(layout.stacks[d][0].first, static_cast<int>(d), order)) continue;
      Layout next = layout;
      next.stacks[d][0].second = order;
      finish(next, d + 1);
    }
  }

  void keep(Layout layout) {
    for (int m = 0; m < space_.dims(); ++m)
      if (is_partial_code(layout.hold[static_cast<std::size_t>(m)]))
        layout.state.set_hold(m, layout.hold[static_cast<std::size_t>(m)]);
    for (std::size_t d = 0; d < layout.stacks.size(); ++d)
      for (const auto& [m, order] : layout.stacks[d])
        layout.state.push_shard(m, static_cast<int>(d), order);
    places_[layout.state.key] = all.size();
    all.push_back(std::move(layout));
  }

  const SearchSpace& space_;
  std::map<std::uint64_t, std::size_t> places_;
};

char kind_of(HoldCode code) {
  if (is_shard_code(code)) return 'S';
  if (code == kHoldReplicate) return 'R';
  if (code == hold_partial(PartialOp::kMax)) return '>';
  return code == hold_partial(PartialOp::kMin) ? '<' : '+';
}

bool is_partial_kind(char kind) { return kind != 'S' && kind != 'R'; }

/// What one step may be between two layouts.
class Steps {
 public:
  Steps(const SearchSpace& space, const StepCost& cost) : space_(space), cost_(cost) {}

  double cheapest(const Layout& from, const Layout& to) const {
    std::vector<int> changed;
    char before = 0, after = 0;
    bool alike = true, regrouped = true;
    for (int m = 0; m < space_.dims(); ++m) {
      const auto i = static_cast<std::size_t>(m);
      const char a = kind_of(from.hold[i]), b = kind_of(to.hold[i]);
      regrouped = regrouped && a == b && (a == 'S' || from.hold[i] == to.hold[i]);
      if (a == b && (a == 'S' || from.hold[i] == to.hold[i])) continue;
      alike = alike && (changed.empty() || (a == before && b == after));
      before = a;
      after = b;
      changed.push_back(m);
    }
    if (regrouped) return exchange(from, to);
    if (!alike) return kInfinity;
    if (is_partial_kind(after)) return into_partial(from, to, changed, before);
    if (before == 'S')
      return after == 'R' ? grown(StepKind::kAllGather, to, from, from, to, changed) : kInfinity;
    if (after == 'S' && (before != 'R' || changed.size() == 1))
      return grown(before == 'R' ? StepKind::kSlice : StepKind::kReduceScatter, from, to, from, to,
                   changed);
    if (after == 'R' && from.stacks == to.stacks)
      return seconds(StepKind::kAllReduce, changed, from, to);
    return kInfinity;
  }

 private:
  double seconds(StepKind kind, const std::vector<int>& dims, const Layout& from,
                 const Layout& to) const {
    DimList list;
    for (const int m : dims) list.push_back(m);
    return cost_.seconds(from.state, {kind, list, to.state});
  }

  /// A step where `larger` has the shardings of `smaller` and behind them, on one tensor dim, those
  /// of the changed mesh dims.
  double grown(StepKind kind, const Layout& smaller, const Layout& larger, const Layout& from,
               const Layout& to, const std::vector<int>& changed) const {
    std::vector<int> dims;
    for (std::size_t d = 0; d < smaller.stacks.size(); ++d) {
      const std::vector<AxisSharding>&few = smaller.stacks[d], &many = larger.stacks[d];
      if (few == many) continue;
      if (!dims.empty() || many.size() != few.size() + changed.size() ||
          !std::equal(few.begin(), few.end(), many.begin()))
        return kInfinity;
      for (std::size_t c = few.size(); c < many.size(); ++c) dims.push_back(many[c].first);
    }
    return seconds(kind, dims, from, to);
  }

  double into_partial(const Layout& from, const Layout& to, const std::vector<int>& changed,
                      char before) const {
    const auto i = static_cast<std::size_t>(changed[0]);
    if (changed.size() != 1 || to.hold[i] != space_.goal().hold[i]) return kInfinity;
    if (is_partial_kind(before))
      return before == '+' && from.stacks == to.stacks
                 ? seconds(StepKind::kConvertPartial, changed, from, to)
                 : kInfinity;
    if (to.hold[i] != hold_partial(PartialOp::kSum)) return kInfinity;
    if (before == 'S') return grown(StepKind::kToPartial, to, from, from, to, changed);
    return from.stacks == to.stacks ? seconds(StepKind::kToPartial, changed, from, to) : kInfinity;
  }

  /// Over every group that holds all shardings that differ and what lies behind them.
  double exchange(const Layout& from, const Layout& to, std::size_t d = 0,
                  std::vector<int> group = {}) const {
    if (d == from.stacks.size()) {
      std::sort(group.begin(), group.end());
      return group.empty() ? kInfinity : seconds(StepKind::kAllToAll, group, from, to);
    }
    const std::vector<AxisSharding>&a = from.stacks[d], &b = to.stacks[d];
    double least = kInfinity;
    for (std::size_t kept = 0; kept <= a.size() && kept <= b.size(); ++kept) {
      if (!std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(kept), b.begin())) break;
      std::vector<int> wider = group;
      for (std::size_t c = kept; c < a.size(); ++c) wider.push_back(a[c].first);
      least = std::min(least, exchange(from, to, d + 1, wider));
    }
    return least;
  }

  const SearchSpace& space_;
  const StepCost& cost_;
};

}  // namespace

double reference_seconds(const SearchSpace& space, const StepCost& cost) {
  const Layouts layouts(space);
  const Steps steps(space, cost);
  const std::size_t goal = layouts.index_of(space.goal());
  std::vector<double> spent(layouts.all.size(), kInfinity);
  std::vector<bool> done(layouts.all.size(), false);
  spent[layouts.index_of(space.start())] = 0.0;
  for (;;) {
    std::size_t at = goal;
    for (std::size_t i = 0; i < spent.size(); ++i)
      if (!done[i] && (done[at] || spent[i] < spent[at])) at = i;
    if (at == goal) return spent[goal];
    done[at] = true;
    for (std::size_t i = 0; i < spent.size(); ++i)
      if (!done[i] && i != at)
        spent[i] = std::min(spent[i], spent[at] + steps.cheapest(layouts.all[at], layouts.all[i]));
  }
}

}  // namespace meshloom::planner
