// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/run_mesh.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

planner::MeshLayout checked(planner::MeshLayout layout, int ranks) {
  for (const planner::MeshDim& dim : layout.dims())
    check(dim.name == "dp" || dim.name == "fsdp" || dim.name == "cp" || dim.name == "tp",
          "mesh {}: dim '{}' is none of dp, fsdp, cp and tp", layout, dim.name);
  // Seen before any group is made, so that all ranks leave alike and none waits for the others.
  if (layout.size() != ranks)
    throw FailedPrecondition(fmt::format("the mesh {} has {} ranks, the world has {}",
                                         to_string(layout), layout.size(), ranks),
                             "MESH_SIZE");
  return layout;
}

std::unique_ptr<comm::ProcessGroup> same_ranks(comm::ProcessGroup& group, const std::string& name) {
  std::vector<int> all(static_cast<std::size_t>(group.size()));
  std::iota(all.begin(), all.end(), 0);
  return group.split({all}, name);
}

}  // namespace

planner::MeshLayout mesh_layout(const v1::Mesh& mesh) {
  return planner::MeshLayout(
      {{"dp", mesh.dp()}, {"fsdp", mesh.fsdp()}, {"cp", mesh.cp()}, {"tp", mesh.tp()}});
}

RunMesh::RunMesh(comm::ProcessGroup& world, planner::MeshLayout layout)
    : world_(world), mesh_(world, checked(std::move(layout), world.size())) {
  make_state_layout();
  const bool flattened = shards_over_sequence();
  data_ = &group_of({"dp", "fsdp"});
  comm::ProcessGroup& shard = mesh_.group(shard_dims());
  gathers_ = same_ranks(shard, "fsdp_gathers");
  reductions_ = same_ranks(shard, "fsdp_sums");
  std::vector<int> model = shard_dims();
  if (const auto tp = mesh_.layout()->find_dim("tp")) model.push_back(*tp);
  model_ = &mesh_.group(model);
  make_sample_mesh();
  // Without cp these are groups that there are already: no second one of the same ranks is made.
  const bool sharded = sequence_->size() > 1;
  replicas_ = sharded && !flattened ? &group_of({"dp", "cp"}) : &group_of({"dp"});
  gradients_ = sharded ? &group_of({"dp", "fsdp", "cp"}) : data_;
}

void RunMesh::make_state_layout() {
  const planner::MeshLayout& layout = *mesh_.layout();
  state_layout_ = mesh_.layout();
  const auto fsdp = layout.find_dim("fsdp"), cp = layout.find_dim("cp");
  if (!fsdp || !cp || std::abs(*fsdp - *cp) != 1) return;
  if (layout.size_of("fsdp") == 1 || layout.size_of("cp") == 1) return;
  // Neighbours count as one dim in the same order of ranks.
  const int first = std::min(*fsdp, *cp);
  state_layout_ =
      std::make_shared<const planner::MeshLayout>(layout.flatten({first, first + 1}, "fsdp_cp"));
}

std::vector<int> RunMesh::shard_dims() const {
  const planner::MeshLayout& layout = *mesh_.layout();
  const auto fsdp = layout.find_dim("fsdp");
  if (!fsdp) return {};
  if (!shards_over_sequence()) return {*fsdp};
  const int first = std::min(*fsdp, *layout.find_dim("cp"));
  return {first, first + 1};
}

std::vector<int> RunMesh::state_coordinates() const {
  return state_layout_->coordinates(world_.rank());
}

std::optional<int> RunMesh::shard_dim() const {
  return state_layout_->find_dim(shards_over_sequence() ? "fsdp_cp" : "fsdp");
}

void RunMesh::make_sample_mesh() {
  const planner::MeshLayout& layout = *mesh_.layout();
  const bool tensor = layout.find_dim("tp").has_value();
  const bool sequence = layout.find_dim("cp") && layout.size_of("cp") > 1;
  // In the order of the mesh, as a sub-mesh has them.
  std::vector<std::string> names;
  for (const planner::MeshDim& dim : layout.dims())
    if ((sequence && dim.name == "cp") || dim.name == "tp") names.push_back(dim.name);
  if (!names.empty()) sample_mesh_ = mesh_.sub_mesh(names);
  const auto group = [&](bool there, const char* name) {
    return there ? &sample_mesh_->group(*sample_mesh_->layout()->find_dim(name))
                 : &group_of({name});
  };
  tensor_ = group(tensor, "tp");
  sequence_ = group(sequence, "cp");
  const bool both = tensor && sequence;
  same_samples_ = both ? &sample_mesh_->group({0, 1}) : sequence ? sequence_ : tensor_;
}

comm::ProcessGroup& RunMesh::group_of(std::initializer_list<const char*> names) {
  std::vector<int> dims;
  for (const char* name : names)
    if (const auto dim = mesh_.layout()->find_dim(name)) dims.push_back(*dim);
  return mesh_.group(dims);
}

bool RunMesh::in_first_copy() const {
  const auto dp = layout()->find_dim("dp");
  return !dp || coordinates()[static_cast<std::size_t>(*dp)] == 0;
}

GroupCounters RunMesh::counters() const {
  GroupCounters all;
  std::vector<const comm::ProcessGroup*> seen;
  const auto add = [&](const char* name, const comm::ProcessGroup& group) {
    if (group.size() == 1 || std::find(seen.begin(), seen.end(), &group) != seen.end()) return;
    seen.push_back(&group);
    for (const auto& [collective, counter] : group.counters()) {
      comm::CommCounter& sum = all[{name, collective}];
      sum.calls += counter.calls;
      sum.bytes_sent += counter.bytes_sent;
    }
  };
  add("world", world_);
  add("dp_fsdp", *data_);
  const bool flattened = shards_over_sequence();
  add(flattened ? "fsdp_cp" : "fsdp", *gathers_);
  add(flattened ? "fsdp_cp" : "fsdp", *reductions_);
  if (flattened || sequence_->size() == 1) add("dp", *replicas_);
  add("tp", *tensor_);
  add(flattened ? "fsdp_cp_tp" : "fsdp_tp", *model_);
  add("cp", *sequence_);
  add("dp_cp", *replicas_);
  add("dp_fsdp_cp", *gradients_);
  add("cp_tp", *same_samples_);
  return all;
}

}  // namespace meshloom::train
