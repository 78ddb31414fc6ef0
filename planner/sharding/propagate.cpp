// SPDX-License-Identifier: Apache-2.0
#include "planner/sharding/propagate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/sharding/rules/rules.h"
#include "planner/sharding/strategy_search.h"

namespace meshloom::planner {
namespace {

/// Choices that the planner is asked about if estimates come close.
constexpr std::size_t kCompared = 8;
constexpr double kClose = 1.25;
/// Costs this close, relatively, are equal: then the estimates' order stands, which prefers what
/// changes less.
constexpr double kTie = 0.05;

void check_mesh(const OpCall& call) {
  const SpecPtr* first = nullptr;
  for (const SpecPtr& input : call.inputs) {
    if (input == nullptr) continue;
    if (first == nullptr) first = &input;
    if (input->mesh_ptr() != (*first)->mesh_ptr() && !(input->mesh() == (*first)->mesh()))
      rules::refuse(call, fmt::format("the inputs lie on different meshes, {} and {}",
                                      to_string((*first)->mesh()), to_string(input->mesh())));
  }
  if (first == nullptr) throw InvalidArgument(fmt::format("{}: no inputs", op_name(call.op)));
}

/// The order that `mesh_dim` gives an axis of an input, if it shards it.
struct HeldOrder {
  bool sharding = false;
  DimOrderPtr order;
  bool listed() const { return order != nullptr && order->groups() == 0; }
};

HeldOrder held_order(const OpCall& call, const ShardAxis& axis, std::size_t input, int mesh_dim) {
  const AxisUse& use = axis.inputs[input];
  if (!use.shows_axis() || call.inputs[input] == nullptr) return {};
  const DTensorSpec& spec = *call.inputs[input];
  if (spec.placement(mesh_dim) != Placement::shard(use.dim)) return {};
  return {true, spec.dim_order(mesh_dim)};
}

/// Whether inputs i and j follow one order; its rows may lie in another dim of each.
bool follow_one_order(const OpRule& rule, std::size_t i, const DimOrderPtr& mine, std::size_t j,
                      const DimOrderPtr& other) {
  if (i == j) return true;
  if (!mine->by_row()) return same_order(mine, other);
  return other != nullptr && mine->lists_digest() == other->lists_digest() &&
         same_dim_of_input(rule, i, mine->row_dim(), j) == other->row_dim();
}

/// Sequences in different orders look alike and are not: they are never brought together silently.
void check_orders(const OpCall& call, const OpRule& rule) {
  if (std::none_of(call.inputs.begin(), call.inputs.end(), [](const SpecPtr& input) {
        return input != nullptr && input->has_dim_orders();
      }))
    return;
  for (const ShardAxis& axis : rule.axes)
    for (std::size_t i = 0; i < axis.inputs.size(); ++i) {
      if (call.inputs[i] == nullptr || !call.inputs[i]->has_dim_orders()) continue;
      for (int m = 0; m < call.inputs[i]->mesh().ndim(); ++m) {
        const HeldOrder mine = held_order(call, axis, i, m);
        if (!mine.listed()) continue;
        for (std::size_t j = 0; j < axis.inputs.size(); ++j) {
          const HeldOrder other = held_order(call, axis, j, m);
          if (other.sharding && !follow_one_order(rule, i, mine.order, j, other.order))
            rules::refuse(call,
                          fmt::format("inputs {} and {} are sharded in different orders of the "
                                      "same dim on mesh dim {}",
                                      i, j, m));
        }
      }
    }
}

/// Equal layouts are one object, so that pointers tell them apart.
SpecPtr shared(SpecPtr spec, const std::vector<SpecPtr>& known) {
  for (const SpecPtr& other : known)
    if (other != nullptr && *other == *spec) return other;
  return spec;
}

/// Where the gradient of an input differs from the input: R of a mesh dim that is sharded
/// otherwise, and Partial.
SpecPtr gradient_spec(const SpecPtr& input, const std::vector<bool>& shares) {
  bool same = true;
  Placements placements = input->placements();
  std::vector<DimOrderPtr> orders;
  for (std::size_t m = 0; m < placements.size(); ++m) {
    orders.push_back(input->dim_order(static_cast<int>(m)));
    if (placements[m].is_partial())
      placements[m] = Placement::replicate();
    else if (placements[m].is_replicate() && shares[m])
      placements[m] = Placement::partial_of(PartialOp::kSum);
    else
      continue;
    same = false;
  }
  if (same) return input;
  if (!input->has_dim_orders()) orders.clear();
  return std::make_shared<DTensorSpec>(input->mesh_ptr(), std::move(placements), input->shape(),
                                       input->shard_order(), std::move(orders));
}

/// Puts a choice into words.
class DecisionBuilder {
 public:
  DecisionBuilder(const OpCall& call, const OpRule& rule, StrategySearch& search,
                  const StrategyChoice& choice)
      : call_(call), rule_(rule), search_(search), choice_(choice) {
    for (const SpecPtr& input : call.inputs)
      if (input != nullptr) mesh_ = input->mesh_ptr();
  }

  ShardingDecision build() {
    ShardingDecision decision;
    // Whether an R input is a share of its gradient only on each mesh dim.
    std::vector<bool> shares;
    for (int m = 0; m < mesh_->ndim(); ++m) shares.push_back(strategy(m) > 0);
    for (std::size_t i = 0; i < call_.inputs.size(); ++i) {
      const SpecPtr& given = call_.inputs[i];
      SpecPtr input;
      if (given != nullptr) {
        input = layout(
            given->shape(), [&](int s) { return search_.input_placement(s, i); },
            [&](const ShardAxis& axis) { return axis.inputs[i]; },
            [&](const ShardAxis& axis, const AxisSharding& sharding) {
              return search_.sharding_of_input(axis, sharding, i);
            });
        input = *input == *given ? given : shared(input, call_.inputs);
      }
      decision.inputs.push_back(input);
      decision.input_grads.push_back(input ? gradient_spec(input, shares) : nullptr);
    }
    for (std::size_t j = 0; j < rule_.outputs.size(); ++j) {
      SpecPtr output = layout(
          rule_.outputs[j], [&](int s) { return search_.output_placement(s, j); },
          [&](const ShardAxis& axis) { return axis.outputs[j]; },
          [&](const ShardAxis& axis, const AxisSharding& sharding) {
            return search_.sharding_of_output(axis, sharding, j);
          });
      decision.outputs.push_back(shared(shared(output, decision.inputs), decision.outputs));
    }
    for (int m = 0; m < mesh_->ndim(); ++m) add_role(decision, m);
    return decision;
  }

 private:
  int strategy(int mesh_dim) const {
    return choice_.strategies[static_cast<std::size_t>(mesh_dim)];
  }

  template <typename PlacementOf, typename UseOf, typename ShardingOf>
  SpecPtr layout(const Shape& shape, const PlacementOf& placement_of, const UseOf& use_of,
                 const ShardingOf& sharding_of) {
    Placements placements;
    ShardOrder order;
    std::vector<DimOrderPtr> dim_orders(static_cast<std::size_t>(mesh_->ndim()));
    bool any_order = false;
    for (int m = 0; m < mesh_->ndim(); ++m) {
      placements.push_back(placement_of(strategy(m)));
      const ShardAxis* axis = search_.axis(strategy(m));
      if (axis == nullptr || !use_of(*axis).present()) continue;
      if (std::find(choice_.strategies.begin(), choice_.strategies.begin() + m, strategy(m)) !=
          choice_.strategies.begin() + m)
        continue;
      const AxisSharding& sharding = search_.sharding(choice_, strategy(m) - 1);
      DimOrderPtr dim_order = sharding_of(*axis, sharding).order;
      order.push_back({use_of(*axis).dim, sharding.mesh_dims});
      any_order = any_order || dim_order != nullptr;
      dim_orders[static_cast<std::size_t>(sharding.mesh_dims.front())] = std::move(dim_order);
    }
    if (!any_order) dim_orders.clear();
    return std::make_shared<DTensorSpec>(mesh_, std::move(placements), shape, std::move(order),
                                         std::move(dim_orders));
  }

  void add_role(ShardingDecision& decision, int m) {
    const ShardAxis* axis = search_.axis(strategy(m));
    const PartialStrategy* partial = search_.partial(strategy(m));
    const auto role = axis ? axis->role : partial ? partial->role : std::nullopt;
    if (!role) return;
    for (RoleDims& known : decision.roles)
      if (known.role == *role) return known.mesh_dims.push_back(m);
    decision.roles.push_back({*role, {m}});
  }

  const OpCall& call_;
  const OpRule& rule_;
  StrategySearch& search_;
  const StrategyChoice& choice_;
  MeshPtr mesh_;
};

struct InputCost {
  double cost = 0.0;
  int collectives = 0;
};

/// The planner's costs of redistributing the inputs; an input that several choices bring into the
/// same layout is planned once.
class InputCosts {
 public:
  InputCosts(const OpCall& call, const RedistributeOptions& options, PlanCache* plans)
      : call_(call), options_(options), plans_(plans), known_(call.inputs.size()) {}

  /// Stops as soon as the sum passes `limit`, by a cost above it.
  InputCost of(ShardingDecision& decision, double limit) {
    InputCost total;
    for (std::size_t i = 0; i < call_.inputs.size() && total.cost <= limit; ++i) {
      if (call_.inputs[i] == nullptr || call_.inputs[i] == decision.inputs[i]) continue;
      const Known& known = plan(i, decision.inputs[i]);
      decision.inputs[i] = known.to;
      total.cost += known.cost.cost;
      total.collectives += known.cost.collectives;
    }
    return total;
  }

 private:
  struct Known {
    SpecPtr to;
    InputCost cost;
  };

  const Known& plan(std::size_t input, const SpecPtr& to) {
    for (const Known& known : known_[input])
      if (*known.to == *to) return known;
    const SpecPtr& from = call_.inputs[input];
    const PlanPtr owned = plans_ ? nullptr : plan_redistribute(from, to, options_);
    const RedistributePlan& plan = plans_ ? plans_->plan(from, to) : *owned;
    return known_[input].emplace_back(Known{to, {plan.cost, plan.comm_count()}});
  }

  const OpCall& call_;
  const RedistributeOptions& options_;
  PlanCache* plans_;
  std::vector<std::vector<Known>> known_;
};

/// The choices whose estimates come close are planned in full.
ShardingDecision cheapest(const OpCall& call, const OpRule& rule, StrategySearch& search,
                          const std::vector<StrategyChoice>& choices,
                          const RedistributeOptions& options, PlanCache* plans) {
  InputCosts costs(call, options, plans);
  ShardingDecision best = DecisionBuilder(call, rule, search, choices[0]).build();
  InputCost best_cost = costs.of(best, std::numeric_limits<double>::infinity());
  double best_total = best_cost.cost + choices[0].pending;
  for (std::size_t c = 1; c < choices.size(); ++c) {
    const StrategyChoice& choice = choices[c];
    if (choice.cost > kClose * choices[0].cost) break;
    ShardingDecision decision = DecisionBuilder(call, rule, search, choice).build();
    const InputCost cost = costs.of(decision, best_total * (1.0 + kTie) - choice.pending);
    const double total = cost.cost + choice.pending;
    const bool tie = std::abs(total - best_total) <= kTie * best_total;
    if (tie ? cost.collectives >= best_cost.collectives : total > best_total) continue;
    best = std::move(decision);
    best_cost = cost;
    best_total = total;
  }
  best.cost = best_cost.cost;
  return best;
}

}  // namespace

const std::vector<int>& ShardingDecision::mesh_dims(MeshRole role) const {
  static const std::vector<int> none;
  for (const RoleDims& known : roles)
    if (known.role == role) return known.mesh_dims;
  return none;
}

ShardingDecision propagate(const OpCall& call, const RedistributeOptions& options,
                           PlanCache* plans) {
  check_mesh(call);
  OpRule rule = make_rule(call);
  const auto unavailable = [&call](const auto& strategy) {
    return strategy.role && !call.roles.contains(*strategy.role);
  };
  std::erase_if(rule.axes, unavailable);
  std::erase_if(rule.partials, unavailable);
  check_orders(call, rule);
  StrategySearch search(call, rule, options);
  const std::vector<StrategyChoice> choices = search.best(kCompared);
  check_internal(!choices.empty(), "{}: no strategy for {}", op_name(call.op),
                 rules::describe_inputs(call));
  if (choices[0].cost == 0.0) return DecisionBuilder(call, rule, search, choices[0]).build();
  return cheapest(call, rule, search, choices, options, plans);
}

}  // namespace meshloom::planner
