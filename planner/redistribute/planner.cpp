// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/planner.h"

#include "kernels/base/error.h"
#include "planner/redistribute/cost.h"
#include "planner/redistribute/cross_mesh.h"
#include "planner/redistribute/greedy.h"
#include "planner/redistribute/search.h"
#include "planner/redistribute/transitions.h"

namespace meshloom::planner {
namespace {

void check_ends(const SpecPtr& from, const SpecPtr& to) {
  check(from != nullptr && to != nullptr, "redistribute: a layout is missing");
  if (!(from->shape() == to->shape()))
    throw InvalidArgument(fmt::format("redistribute: layouts of shapes {} and {}",
                                      to_string(from->shape()), to_string(to->shape())));
}

bool same_mesh(const DTensorSpec& from, const DTensorSpec& to) {
  return from.mesh_ptr() == to.mesh_ptr() || from.mesh() == to.mesh();
}

PlanPtr make_plan(const SearchSpace& space, const StepCost& cost, const std::vector<Move>& moves,
                  CostModel model) {
  auto plan = std::make_shared<RedistributePlan>();
  plan->from = space.from();
  plan->to = space.to();
  plan->steps.reserve(moves.size());
  const LayoutState* state = &space.start();
  SpecPtr at = space.from();
  for (const Move& move : moves) {
    RedistributeStep& step = plan->steps.emplace_back();
    step.kind = move.kind;
    for (const int m : move.dims) step.mesh_dims.push_back(space.mesh_dim(m));
    step.from = at;
    step.to = &move == &moves.back() ? space.to() : space.spec_of(move.next);
    step.cost = model == CostModel::kUnit ? unit_cost(move.kind) : cost.seconds(*state, move);
    step.bytes = cost.bytes(*state, move);
    plan->cost += step.cost;
    at = step.to;
    state = &move.next;
  }
  return plan;
}

std::vector<Move> find_moves(const SearchSpace& space, const StepCost& cost,
                             const RedistributeOptions& options) {
  if (options.planner == PlannerKind::kGreedy)
    return greedy_applies(space) ? greedy_moves(space) : cheapest_unit_moves(space);
  return options.cost_model == CostModel::kUnit ? cheapest_unit_moves(space)
                                                : cheapest_byte_moves(space, cost);
}

}  // namespace

PlanPtr plan_redistribute(const SpecPtr& from, const SpecPtr& to,
                          const RedistributeOptions& options) {
  check_ends(from, to);
  if (!same_mesh(*from, *to)) {
    check(options.planner == PlannerKind::kMinCost && options.cost_model == CostModel::kBytes,
          "redistribute: from mesh {} to mesh {}, which min_cost by bytes alone can plan",
          from->mesh(), to->mesh());
    return plan_across_meshes(from, to, options);
  }
  check_partial_changes(*from, *to);
  const SearchSpace space(from, to);
  const StepCost cost(space, options);
  return make_plan(space, cost, find_moves(space, cost, options), options.cost_model);
}

}  // namespace meshloom::planner
