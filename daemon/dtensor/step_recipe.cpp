// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/step_recipe.h"

#include <optional>

#include "kernels/base/error.h"

namespace meshloom::dtensor {
namespace {

using planner::Boxes;
using planner::RankExchange;
using planner::StepKind;

/// The first element of the local tensor from which the block is one piece of its memory; -1 if it
/// is not.
std::int64_t dense_offset(const Box& box, bool source, const Shape& local) {
  const Dims& first = source ? box.from : box.to;
  std::int64_t offset = 0;
  std::int64_t stride = 1;
  bool sharded = false;  // a dim further in is not taken whole
  for (int d = local.size() - 1; d >= 0; --d) {
    if (sharded && box.size[d] != 1) return -1;
    sharded = sharded || box.size[d] != local[d];
    offset += first[d] * stride;
    stride *= local[d];
  }
  return offset;
}

/// The message's memory if it is not a piece of the local tensor.
std::int64_t staged(const std::vector<Message>& messages) {
  std::int64_t elements = 0;
  for (const Message& message : messages)
    if (message.direct < 0) elements += message.numel;
  return elements;
}

void set_reduction(StepRecipe& recipe, const planner::RedistributeStep& step) {
  std::optional<comm::ReduceOp> found;
  for (const int d : step.mesh_dims) {
    const planner::Placement& placement = step.from->placement(d);
    if (!placement.is_partial())
      throw InternalError("redistribute: a reduction over a dim that is not Partial: " +
                          step.to_string());
    comm::ReduceOp op = comm::ReduceOp::kSum;
    if (placement.partial == planner::PartialOp::kMax) op = comm::ReduceOp::kMax;
    if (placement.partial == planner::PartialOp::kMin) op = comm::ReduceOp::kMin;
    if (placement.partial == planner::PartialOp::kAvg)
      recipe.scale /= step.from->mesh().dim_size(d);
    if (found.value_or(op) != op)
      throw InternalError("redistribute: one reduction of different kinds: " + step.to_string());
    found = op;
  }
  recipe.reduce = found.value_or(comm::ReduceOp::kSum);
}

/// All of a part of this shape as one message, in the local tensor of shape `local` itself if it
/// is dense there.
Message whole_part(const Boxes& boxes, const Shape& part, bool source, const Shape& local) {
  Message message{boxes, part, numel(part), -1};
  if (message.numel == 0)
    message.direct = 0;
  else if (boxes.size() == 1 && boxes[0].size == part)
    message.direct = dense_offset(boxes[0], source, local);
  return message;
}

/// Blocks one after the other.
Message in_blocks(const Boxes& boxes, bool source, const Shape& local) {
  const std::int64_t count = count_elements(boxes);
  Message message{boxes, {count}, count, -1};
  if (count == 0)
    message.direct = 0;
  else if (boxes.size() == 1)
    message.direct = dense_offset(boxes[0], source, local);
  return message;
}

std::vector<TensorView> views_of(const std::vector<Message>& messages) {
  std::vector<TensorView> views;
  views.reserve(messages.size());
  for (const Message& message : messages)
    views.push_back(make_view(nullptr, DType::kFloat32, {message.numel}));
  return views;
}

void check_mesh(const planner::DTensorSpec& spec, const DeviceMesh& mesh) {
  check(spec.mesh() == *mesh.layout(), "redistribute: a layout on the mesh {}, on the mesh {}",
        spec.mesh(), *mesh.layout());
}

StepRecipe start_recipe(const planner::RedistributeStep& step, comm::ProcessGroup* group,
                        const RankExchange& exchange, std::size_t own) {
  StepRecipe recipe;
  recipe.kind = step.kind;
  recipe.from = step.from;
  recipe.to = step.to;
  recipe.group = group;
  recipe.in_shape = exchange.before[own];
  recipe.out_shape = exchange.after[own];
  recipe.own = exchange.kept;
  return recipe;
}

StepRecipe make_local_recipe(const planner::RedistributeStep& step, const DeviceMesh& mesh) {
  StepRecipe recipe = start_recipe(step, nullptr, rank_exchange(step, mesh.rank()), 0);
  for (const int d : step.mesh_dims) {
    const planner::Placement &from = step.from->placement(d), &to = step.to->placement(d);
    if (step.kind == StepKind::kToPartial) {
      // Of a sum the first rank holds the value, the others 0.
      const bool first = mesh.coordinates()[static_cast<std::size_t>(d)] == 0;
      if (to.partial == planner::PartialOp::kSum && from.is_replicate() && !first)
        recipe.holds_value = false;
    } else if (step.kind == StepKind::kConvertPartial) {
      const double size = step.from->mesh().dim_size(d);
      const bool was_avg = from.partial == planner::PartialOp::kAvg;
      const bool is_avg = to.partial == planner::PartialOp::kAvg;
      if (was_avg != is_avg) recipe.scale *= is_avg ? size : 1.0 / size;
    }
  }
  return recipe;
}

/// Steps of messages, whatever the group.
void plan_messages(StepRecipe& recipe, const RankExchange& exchange) {
  if (recipe.kind == StepKind::kReduceScatter) {
    for (std::size_t m = 0; m < exchange.sends.size(); ++m)
      recipe.sends.push_back(
          whole_part(exchange.sends[m], exchange.after[m], true, recipe.in_shape));
    recipe.staged_out = staged(recipe.sends);
  } else if (recipe.kind == StepKind::kAllGather) {
    for (std::size_t m = 0; m < exchange.receives.size(); ++m)
      recipe.receives.push_back(
          whole_part(exchange.receives[m], exchange.before[m], false, recipe.out_shape));
    recipe.staged_in = staged(recipe.receives);
    // This rank's own part is copied straight from its local tensor.
    const Message& own = recipe.receives[static_cast<std::size_t>(recipe.group->rank())];
    if (own.direct < 0) recipe.staged_in -= own.numel;
  } else if (recipe.kind == StepKind::kAllToAll || recipe.kind == StepKind::kSendRecv) {
    for (const Boxes& boxes : exchange.sends)
      recipe.sends.push_back(in_blocks(boxes, true, recipe.in_shape));
    for (const Boxes& boxes : exchange.receives)
      recipe.receives.push_back(in_blocks(boxes, false, recipe.out_shape));
    recipe.staged_in = staged(recipe.receives);
    recipe.staged_out = staged(recipe.sends);
  }
  recipe.send_views = views_of(recipe.sends);
  recipe.receive_views = views_of(recipe.receives);
}

bool belongs(const Recipes& recipes, const planner::RedistributePlan& plan) {
  if (recipes.size() != plan.steps.size()) return false;
  for (std::size_t i = 0; i < recipes.size(); ++i)
    if (recipes[i].from != plan.steps[i].from || recipes[i].to != plan.steps[i].to ||
        recipes[i].kind != plan.steps[i].kind)
      return false;
  return true;
}

}  // namespace

StepRecipe make_recipe(const planner::RedistributeStep& step, DeviceMesh& mesh) {
  check_mesh(*step.from, mesh);
  check_mesh(*step.to, mesh);
  if (is_local(step.kind)) return make_local_recipe(step, mesh);
  comm::ProcessGroup& group = mesh.group(step.mesh_dims);
  const RankExchange exchange = rank_exchange(step, mesh.rank());
  StepRecipe recipe = start_recipe(step, &group, exchange, static_cast<std::size_t>(group.rank()));
  recipe.nothing = group.size() == 1;
  if (recipe.nothing) return recipe;
  if (step.kind == StepKind::kAllReduce || step.kind == StepKind::kReduceScatter)
    set_reduction(recipe, step);
  plan_messages(recipe, exchange);
  return recipe;
}

StepRecipe make_crossing_recipe(const planner::RedistributeStep& step, comm::ProcessGroup& group,
                                const planner::StepMembers& members) {
  const RankExchange exchange = rank_exchange(step, members, group.rank());
  StepRecipe recipe = start_recipe(step, &group, exchange, static_cast<std::size_t>(group.rank()));
  plan_messages(recipe, exchange);
  return recipe;
}

const std::shared_ptr<Recipes>& StepCache::recipes(const planner::RedistributePlan& plan,
                                                   DeviceMesh& mesh) {
  const auto found = plans_.find(&plan);
  if (found != plans_.end() && belongs(*found->second, plan)) return found->second;
  if (plans_.size() >= kMostPlans) plans_.clear();
  auto made = std::make_shared<Recipes>();
  for (const planner::RedistributeStep& step : plan.steps) made->push_back(make_recipe(step, mesh));
  return plans_.insert_or_assign(&plan, std::move(made)).first->second;
}

}  // namespace meshloom::dtensor
