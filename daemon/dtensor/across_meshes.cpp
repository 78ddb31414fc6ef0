// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/across_meshes.h"

#include "daemon/dtensor/redistribute_specs.h"
#include "kernels/base/error.h"

namespace meshloom::dtensor {
namespace {

using planner::SpecPtr;

/// The group that exchanges, and the mesh rank of each of its ranks, -1 outside.
struct Crossing {
  comm::ProcessGroup& group;
  planner::StepMembers members;
};

std::vector<int> places_of(const DeviceMesh& mesh, int group_size) {
  std::vector<int> places(static_cast<std::size_t>(group_size), -1);
  for (int rank = 0; rank < mesh.layout()->size(); ++rank)
    places[static_cast<std::size_t>(mesh.parent_ranks()[static_cast<std::size_t>(rank)])] = rank;
  return places;
}

/// By rank of the root mesh if `in_root`, else of the group that it was made on.
std::vector<int> places_of(const MeshFrame& frame, int group_size, bool in_root) {
  std::vector<int> places(static_cast<std::size_t>(group_size), -1);
  const DeviceMesh& root = *frame.root;
  for (int rank = 0; rank < frame.layout->size(); ++rank) {
    const int at = root.layout()->find_world_rank(frame.layout->world_rank(rank)).value();
    const int place = in_root ? at : root.parent_ranks()[static_cast<std::size_t>(at)];
    places[static_cast<std::size_t>(place)] = rank;
  }
  return places;
}

Crossing crossing_between(DeviceMesh& from, DeviceMesh& to) {
  const MeshFrame &a = from.frame(), &b = to.frame();
  if (a.root == b.root) {
    comm::ProcessGroup& group = a.root->whole_group();
    return {group, {places_of(a, group.size(), true), places_of(b, group.size(), true)}};
  }
  comm::ProcessGroup& group = a.root->parent();
  check(&group == &b.root->parent(), "redistribute: the meshes {} and {} are not of one group",
        *from.layout(), *to.layout());
  for (const DeviceMesh* mesh : {&from, &to})
    check(mesh->frame().root == mesh || mesh->frame().root->layout()->size() == group.size(),
          "redistribute: between the meshes {} and {}: {} is part of the mesh {}, which leaves out "
          "ranks of group '{}'",
          *from.layout(), *to.layout(), *mesh->layout(), *mesh->frame().root->layout(),
          group.name());
  return {group, {places_of(a, group.size(), false), places_of(b, group.size(), false)}};
}

/// The same tensor on the frame of its mesh: R over the dims that the mesh leaves out.
SpecPtr in_frame(const SpecPtr& spec, const MeshFrame& frame) {
  const auto mesh_dim = [&frame](int d) { return frame.dims[static_cast<std::size_t>(d)]; };
  planner::Placements placements(static_cast<std::size_t>(frame.layout->ndim()));
  std::vector<planner::DimOrderPtr> dim_orders(spec->has_dim_orders() ? placements.size() : 0);
  for (int d = 0; d < spec->mesh().ndim(); ++d) {
    const auto at = static_cast<std::size_t>(mesh_dim(d));
    placements[at] = spec->placement(d);
    if (!dim_orders.empty()) dim_orders[at] = spec->dim_order(d);
  }
  planner::ShardOrder order = spec->shard_order();
  for (planner::DimShardOrder& shards : order)
    for (int& d : shards.mesh_dims) d = mesh_dim(d);
  return std::make_shared<const planner::DTensorSpec>(
      frame.layout, std::move(placements), spec->shape(), std::move(order), std::move(dim_orders));
}

void add_steps(Recipes& recipes, const SpecPtr& from, const SpecPtr& to, DeviceMesh& mesh,
               planner::PlanCache& plans) {
  if (*from == *to) return;
  for (const planner::RedistributeStep& step : plans.plan(from, to).steps)
    if (mesh.member()) recipes.push_back(make_recipe(step, mesh));
}

}  // namespace

Recipes recipes_across(const SpecPtr& from, DeviceMesh& from_mesh, const SpecPtr& to,
                       DeviceMesh& to_mesh, planner::PlanCache& plans) {
  Recipes recipes;
  if (&from_mesh.parent() == &to_mesh.parent()) {
    // Both meshes as they were made: the planner chooses in what layout to send.
    const int group_size = from_mesh.parent().size();
    const planner::StepMembers members{places_of(from_mesh, group_size),
                                       places_of(to_mesh, group_size)};
    for (const planner::RedistributeStep& step : plans.plan(from, to).steps) {
      const bool crosses = !(step.from->mesh() == step.to->mesh());
      DeviceMesh& mesh = step.to->mesh() == *to_mesh.layout() ? to_mesh : from_mesh;
      if (crosses)
        recipes.push_back(make_crossing_recipe(step, from_mesh.parent(), members));
      else if (mesh.member())
        recipes.push_back(make_recipe(step, mesh));
    }
    return recipes;
  }
  const MeshFrame &a = from_mesh.frame(), &b = to_mesh.frame();
  if (a.mesh != nullptr && a.mesh == b.mesh) {
    add_steps(recipes, in_frame(from, a), in_frame(to, b), *a.mesh, plans);
    return recipes;
  }
  // Partials are made and reduced on the meshes themselves; what crosses lies in their frames.
  const Crossing crossing = crossing_between(from_mesh, to_mesh);
  const SpecPtr sent = without_partial(from), received = without_partial(to);
  // Refuses what cannot be made before anything is sent.
  if (received != to) plans.plan(received, to);
  add_steps(recipes, from, sent, from_mesh, plans);
  planner::RedistributeStep step;
  step.kind = planner::StepKind::kSendRecv;
  step.from = in_frame(sent, a);
  step.to = in_frame(received, b);
  check(from->shape() == to->shape(), "redistribute: a tensor of shape {} into a layout of {}",
        planner::to_string(*from) + " " + to_string(from->shape()), to->shape());
  recipes.push_back(make_crossing_recipe(step, crossing.group, crossing.members));
  add_steps(recipes, received, to, to_mesh, plans);
  return recipes;
}

}  // namespace meshloom::dtensor
