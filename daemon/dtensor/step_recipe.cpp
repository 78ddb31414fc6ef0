// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/step_recipe.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "kernels/base/error.h"

namespace meshloom::dtensor {
namespace {

using planner::LocalPart;
using planner::StepKind;

/// Where the members of a step's group stand in the meshes of the two layouts.
struct Members {
  int own = 0;
  std::vector<std::vector<int>> from, to;  ///< coordinates; empty where outside that mesh

  int size() const { return static_cast<int>(from.size()); }
};

/// Coordinates of member `index` of the group along `mesh_dims`, numbered row-major.
std::vector<int> member_coordinates(const planner::MeshLayout& mesh, std::vector<int> own,
                                    const std::vector<int>& mesh_dims, int index) {
  for (std::size_t i = mesh_dims.size(); i-- > 0;) {
    const int size = mesh.dim_size(mesh_dims[i]);
    own[static_cast<std::size_t>(mesh_dims[i])] = index % size;
    index /= size;
  }
  return own;
}

Members members_of(const planner::RedistributeStep& step, const DeviceMesh& mesh,
                   const comm::ProcessGroup& group) {
  Members members;
  members.own = group.rank();
  for (int m = 0; m < group.size(); ++m)
    members.from.push_back(
        member_coordinates(step.from->mesh(), mesh.coordinates(), step.mesh_dims, m));
  members.to = members.from;
  return members;
}

/// By rank of the parent of both meshes.
Members members_of(const DeviceMesh& from, const DeviceMesh& to) {
  Members members;
  members.own = from.parent().rank();
  const auto places = [&](const DeviceMesh& mesh) {
    std::vector<std::vector<int>> coordinates(static_cast<std::size_t>(mesh.parent().size()));
    for (int rank = 0; rank < mesh.layout()->size(); ++rank)
      coordinates[static_cast<std::size_t>(mesh.parent_ranks()[static_cast<std::size_t>(rank)])] =
          mesh.layout()->coordinates(rank);
    return coordinates;
  };
  members.from = places(from);
  members.to = places(to);
  return members;
}

LocalPart part_at(const planner::DTensorSpec& spec, const std::vector<int>& coordinates) {
  if (!coordinates.empty() || spec.mesh().ndim() == 0) return spec.local_part(coordinates);
  LocalPart none;
  none.shape = {0};
  return none;
}

/// For every receiver which members send: of those that hold the same elements one, itself before
/// others, else by turns.
class Senders {
 public:
  Senders(const planner::DTensorSpec& from, const Members& members) {
    for (int m = 0; m < members.size(); ++m) {
      const auto& at = members.from[static_cast<std::size_t>(m)];
      if (at.empty() && from.mesh().ndim() > 0) continue;
      std::vector<int> key;
      for (int d = 0; d < from.mesh().ndim(); ++d)
        if (from.placement(d).is_shard()) key.push_back(at[static_cast<std::size_t>(d)]);
      const auto known = std::find(keys_.begin(), keys_.end(), key);
      const auto index = static_cast<std::size_t>(known - keys_.begin());
      if (known == keys_.end()) {
        keys_.push_back(key);
        holders_.emplace_back();
      }
      holders_[index].push_back(m);
    }
  }

  bool sends(int sender, int receiver) const {
    for (const std::vector<int>& holders : holders_) {
      if (std::find(holders.begin(), holders.end(), sender) == holders.end()) continue;
      if (std::find(holders.begin(), holders.end(), receiver) != holders.end())
        return sender == receiver;
      return holders[static_cast<std::size_t>(receiver) % holders.size()] == sender;
    }
    return false;
  }

 private:
  std::vector<std::vector<int>> keys_;
  std::vector<std::vector<int>> holders_;
};

std::int64_t offset_in(const Box& box, bool source, const Shape& local) {
  return dense_offset(source ? box.from : box.to, box.size, local);
}

/// The message's memory where it is not a piece of the local tensor.
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

/// All of `part` as one message, in the local tensor of shape `local` itself where it is dense
/// there.
Message whole_part(Boxes boxes, const LocalPart& part, bool source, const Shape& local) {
  Message message{std::move(boxes), part.shape, numel(part.shape), -1};
  if (message.numel == 0)
    message.direct = 0;
  else if (covers(message.boxes, part.shape))
    message.direct = offset_in(message.boxes[0], source, local);
  return message;
}

void plan_all_gather(StepRecipe& recipe, const Members& members) {
  const LocalPart out = part_at(*recipe.to, members.to[static_cast<std::size_t>(members.own)]);
  for (const auto& at : members.from) {
    const LocalPart part = part_at(*recipe.from, at);
    recipe.receives.push_back(whole_part(common_boxes(part, out), part, false, recipe.out_shape));
  }
  // This rank's own part is copied straight from its local tensor.
  recipe.staged_in = staged(recipe.receives);
  const Message& own = recipe.receives[static_cast<std::size_t>(members.own)];
  if (own.direct < 0) recipe.staged_in -= own.numel;
}

void plan_reduce_scatter(StepRecipe& recipe, const Members& members) {
  const LocalPart in = part_at(*recipe.from, members.from[static_cast<std::size_t>(members.own)]);
  for (const auto& at : members.to) {
    const LocalPart part = part_at(*recipe.to, at);
    recipe.sends.push_back(whole_part(common_boxes(in, part), part, true, recipe.in_shape));
  }
  recipe.staged_out = staged(recipe.sends);
}

Message exchanged(const LocalPart& from, const LocalPart& to, bool sending, bool wanted) {
  Message message;
  if (wanted) message.boxes = common_boxes(from, to);
  message.numel = count_elements(message.boxes);
  message.shape = {message.numel};
  if (message.numel == 0)
    message.direct = 0;
  else if (message.boxes.size() == 1)
    message.direct = offset_in(message.boxes[0], sending, sending ? from.shape : to.shape);
  return message;
}

bool moves_partial(const planner::RedistributeStep& step) {
  if (!(step.from->mesh() == step.to->mesh()))
    return step.from->has_partial() || step.to->has_partial();
  return std::any_of(step.mesh_dims.begin(), step.mesh_dims.end(), [&](int d) {
    return step.from->placement(d).is_partial() || step.to->placement(d).is_partial();
  });
}

void plan_exchange(StepRecipe& recipe, const planner::RedistributeStep& step,
                   const Members& members) {
  if (moves_partial(step))
    throw InternalError("redistribute: a Partial layout in an exchange: " + step.to_string());
  const auto own = static_cast<std::size_t>(members.own);
  const LocalPart mine = part_at(*recipe.from, members.from[own]);
  const LocalPart wanted = part_at(*recipe.to, members.to[own]);
  const Senders senders(*recipe.from, members);
  std::int64_t arriving = 0;
  for (int m = 0; m < members.size(); ++m) {
    const auto index = static_cast<std::size_t>(m);
    const bool other = m != members.own;
    recipe.sends.push_back(exchanged(mine, part_at(*recipe.to, members.to[index]), true,
                                     other && senders.sends(members.own, m)));
    recipe.receives.push_back(exchanged(part_at(*recipe.from, members.from[index]), wanted, false,
                                        other && senders.sends(m, members.own)));
    arriving += recipe.receives.back().numel;
  }
  if (senders.sends(members.own, members.own)) recipe.own = common_boxes(mine, wanted);
  if (arriving + count_elements(recipe.own) != numel(recipe.out_shape))
    throw InternalError("redistribute: the group of this step does not hold all of its result: " +
                        step.to_string());
  recipe.staged_in = staged(recipe.receives);
  recipe.staged_out = staged(recipe.sends);
}

void plan_to_partial(StepRecipe& recipe, const planner::RedistributeStep& step,
                     const std::vector<int>& coordinates) {
  for (const int d : step.mesh_dims) {
    const bool sum = step.to->placement(d).partial == planner::PartialOp::kSum;
    const bool was_whole = step.from->placement(d).is_replicate();
    if (sum && was_whole && coordinates[static_cast<std::size_t>(d)] != 0)
      recipe.holds_value = false;
  }
}

void plan_conversion(StepRecipe& recipe, const planner::RedistributeStep& step) {
  for (const int d : step.mesh_dims) {
    const double size = step.from->mesh().dim_size(d);
    const bool was_avg = step.from->placement(d).partial == planner::PartialOp::kAvg;
    const bool is_avg = step.to->placement(d).partial == planner::PartialOp::kAvg;
    if (was_avg != is_avg) recipe.scale *= is_avg ? size : 1.0 / size;
  }
}

std::vector<TensorView> views_of(const std::vector<Message>& messages) {
  std::vector<TensorView> views;
  for (const Message& message : messages)
    views.push_back(make_view(nullptr, DType::kFloat32, {message.numel}));
  return views;
}

void check_mesh(const planner::DTensorSpec& spec, const DeviceMesh& mesh) {
  check(spec.mesh() == *mesh.layout(), "redistribute: a layout on the mesh {}, on the mesh {}",
        to_string(spec.mesh()), to_string(*mesh.layout()));
}

StepRecipe start_recipe(const planner::RedistributeStep& step) {
  StepRecipe recipe;
  recipe.kind = step.kind;
  recipe.from = step.from;
  recipe.to = step.to;
  return recipe;
}

void set_ends(StepRecipe& recipe, const Members& members) {
  const auto own = static_cast<std::size_t>(members.own);
  recipe.in_shape = part_at(*recipe.from, members.from[own]).shape;
  recipe.out_shape = part_at(*recipe.to, members.to[own]).shape;
}

void plan_local(StepRecipe& recipe, const planner::RedistributeStep& step,
                const std::vector<int>& coordinates) {
  recipe.in_shape = step.from->local_shape(coordinates);
  recipe.out_shape = step.to->local_shape(coordinates);
  recipe.own = common_boxes(step.from->local_part(coordinates), step.to->local_part(coordinates));
  if (step.kind == StepKind::kToPartial) plan_to_partial(recipe, step, coordinates);
  if (step.kind == StepKind::kConvertPartial) plan_conversion(recipe, step);
}

void plan_collective(StepRecipe& recipe, const planner::RedistributeStep& step, DeviceMesh& mesh) {
  recipe.group = &mesh.group(step.mesh_dims);
  const Members members = members_of(step, mesh, *recipe.group);
  set_ends(recipe, members);
  recipe.nothing = recipe.group->size() == 1;
  if (recipe.nothing) return;
  if (step.kind == StepKind::kAllReduce || step.kind == StepKind::kReduceScatter)
    set_reduction(recipe, step);
  if (step.kind == StepKind::kReduceScatter) plan_reduce_scatter(recipe, members);
  if (step.kind == StepKind::kAllGather) plan_all_gather(recipe, members);
  if (step.kind == StepKind::kAllToAll || step.kind == StepKind::kSendRecv)
    plan_exchange(recipe, step, members);
  recipe.send_views = views_of(recipe.sends);
  recipe.receive_views = views_of(recipe.receives);
}

}  // namespace

StepRecipe make_recipe(const planner::RedistributeStep& step, DeviceMesh& mesh) {
  check_mesh(*step.from, mesh);
  check_mesh(*step.to, mesh);
  StepRecipe recipe = start_recipe(step);
  if (is_local(step.kind))
    plan_local(recipe, step, mesh.coordinates());
  else
    plan_collective(recipe, step, mesh);
  return recipe;
}

StepRecipe make_crossing_recipe(const planner::RedistributeStep& step, const DeviceMesh& from,
                                const DeviceMesh& to) {
  check_mesh(*step.from, from);
  check_mesh(*step.to, to);
  StepRecipe recipe = start_recipe(step);
  recipe.group = &from.parent();
  const Members members = members_of(from, to);
  set_ends(recipe, members);
  plan_exchange(recipe, step, members);
  recipe.send_views = views_of(recipe.sends);
  recipe.receive_views = views_of(recipe.receives);
  return recipe;
}

}  // namespace meshloom::dtensor
