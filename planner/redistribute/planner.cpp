// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/planner.h"

#include "kernels/base/error.h"
#include "planner/redistribute/cost.h"
#include "planner/redistribute/cross_mesh.h"
#include "planner/redistribute/search.h"
#include "planner/redistribute/transitions.h"

namespace meshloom::planner {
namespace {

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

}  // namespace

PlanPtr plan_redistribute(const SpecPtr& from, const SpecPtr& to,
                          const RedistributeOptions& options) {
  check(from != nullptr && to != nullptr, "redistribute: a layout is missing");
  if (!(from->shape() == to->shape()))
    throw InvalidArgument(fmt::format("redistribute: layouts of shapes {} and {}",
                                      to_string(from->shape()), to_string(to->shape())));
  if (from->mesh_ptr() != to->mesh_ptr() && !(from->mesh() == to->mesh())) {
    check(options.planner == PlannerKind::kMinCost && options.cost_model == CostModel::kBytes,
          "redistribute: from mesh {} to mesh {}, which min_cost by bytes alone can plan",
          from->mesh(), to->mesh());
    return plan_across_meshes(from, to, options);
  }
  check_partial_changes(*from, *to);
  const SearchSpace space(from, to);
  const StepCost cost(space, options);
  const bool greedy = options.planner == PlannerKind::kGreedy;
  std::vector<Move> moves;
  if (greedy && greedy_applies(space))
    moves = greedy_moves(space);
  else if (greedy || options.cost_model == CostModel::kUnit)
    moves = cheapest_unit_moves(space);
  else
    moves = cheapest_byte_moves(space, cost);
  return make_plan(space, cost, moves, options.cost_model);
}

}  // namespace meshloom::planner
