// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run_mesh.h"

#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

planner::MeshLayout checked(planner::MeshLayout layout) {
  for (const planner::MeshDim& dim : layout.dims())
    check(dim.name == "dp" || dim.name == "fsdp" || dim.name == "cp" || dim.name == "tp",
          "mesh {}: dim '{}' is none of dp, fsdp, cp and tp", to_string(layout), dim.name);
  return layout;
}

}  // namespace

planner::MeshLayout mesh_layout(const v1::Mesh& mesh) {
  return planner::MeshLayout(
      {{"dp", mesh.dp()}, {"fsdp", mesh.fsdp()}, {"cp", mesh.cp()}, {"tp", mesh.tp()}});
}

RunMesh::RunMesh(comm::ProcessGroup& world, planner::MeshLayout layout)
    : world_(world), mesh_(world, checked(std::move(layout))) {
  data_ = &group_of({"dp", "fsdp"});
  shard_ = &group_of({"fsdp"});
  replicas_ = &group_of({"dp"});
  model_ = &group_of({"fsdp", "tp"});
  if (mesh_.layout()->find_dim("tp")) {
    tensor_mesh_ = mesh_.sub_mesh({"tp"});
    tensor_ = &tensor_mesh_->group(0);
  } else {
    tensor_ = &group_of({"tp"});
  }
}

comm::ProcessGroup& RunMesh::group_of(std::initializer_list<const char*> names) {
  std::vector<int> dims;
  for (const char* name : names)
    if (const auto dim = mesh_.layout()->find_dim(name)) dims.push_back(*dim);
  return mesh_.group(dims);
}

std::map<std::string, comm::CommCounter> RunMesh::counters() const {
  std::map<std::string, comm::CommCounter> sums = mesh_.counters();
  const auto add = [&sums](const std::map<std::string, comm::CommCounter>& more) {
    for (const auto& [name, counter] : more) {
      sums[name].calls += counter.calls;
      sums[name].bytes_sent += counter.bytes_sent;
    }
  };
  add(world_.counters());
  if (tensor_mesh_) add(tensor_mesh_->counters());
  return sums;
}

}  // namespace meshloom::train
