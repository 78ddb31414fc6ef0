// SPDX-License-Identifier: Apache-2.0
// DeviceMesh: this rank's place in a mesh and its process groups along the mesh's dims.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/comm/process_group.h"
#include "planner/mesh_layout.h"

namespace meshloom::dtensor {

/// Every rank of the parent group makes the same mesh at the same moment. Groups along a dim are
/// made by splitting the parent; those of several dims (flattened, row-major in the listed order)
/// when they are asked for first, which every rank of the mesh does together.
class DeviceMesh {
 public:
  /// Mesh rank i is the parent's rank i, or ranks[i] where ranks are given; the parent's other
  /// ranks are outside the mesh (but take part in making it). Throws InvalidArgument where the
  /// sizes do not fit. The parent outlives the mesh.
  DeviceMesh(comm::ProcessGroup& parent, planner::MeshLayout layout,
             const std::vector<int>& ranks = {});
  ~DeviceMesh();
  DeviceMesh(const DeviceMesh&) = delete;
  DeviceMesh& operator=(const DeviceMesh&) = delete;

  const std::shared_ptr<const planner::MeshLayout>& layout() const { return layout_; }
  /// False on a rank of the parent that the mesh leaves out; such a rank holds empty local tensors.
  bool member() const { return rank_ >= 0; }
  /// In the mesh; -1 where not a member.
  int rank() const { return rank_; }
  /// One per mesh dim; empty where not a member.
  const std::vector<int>& coordinates() const { return coordinates_; }

  /// The ranks that differ from this one along `mesh_dim` only.
  comm::ProcessGroup& group(int mesh_dim);
  /// The ranks that differ along these dims only, numbered row-major in the listed order.
  comm::ProcessGroup& group(const std::vector<int>& mesh_dims);
  /// Sums over all groups of this mesh, by collective; a group of one rank counts nothing.
  std::map<std::string, comm::CommCounter> counters() const;
  void reset_counters();

 private:
  comm::ProcessGroup& parent_;
  std::shared_ptr<const planner::MeshLayout> layout_;
  std::vector<int> parent_ranks_;
  int rank_ = -1;
  std::vector<int> coordinates_;
  std::map<std::vector<int>, std::unique_ptr<comm::ProcessGroup>> groups_;
};

}  // namespace meshloom::dtensor
