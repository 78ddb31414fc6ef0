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

class StepCache;

class DeviceMesh;

/// The frame says where a mesh lies in the one that it was taken from.
struct MeshFrame {
  DeviceMesh* root = nullptr;  ///< the mesh that was not taken from another one
  DeviceMesh* mesh = nullptr;  ///< that has `layout`; null if dims of the root were flattened
  std::shared_ptr<const planner::MeshLayout> layout;  ///< of all ranks of the root
  std::vector<int> dims;                              ///< of `layout` that are the mesh's own
};

/// Every rank of the parent group makes the same mesh at the same moment. Groups along a dim are
/// made by splitting the parent; those of several dims (flattened, row-major in the listed order)
/// when they are asked for first, which every rank of the mesh does together.
class DeviceMesh {
 public:
  /// Mesh rank i is the parent's rank ranks[i] if ranks are given, else that of the layout (i,
  /// or its world rank); the parent's other ranks are outside the mesh (but take part in making
  /// it). Throws InvalidArgument if the sizes do not fit. The parent outlives the mesh.
  DeviceMesh(comm::ProcessGroup& parent, planner::MeshLayout layout,
             const std::vector<int>& ranks = {});
  ~DeviceMesh();
  DeviceMesh(const DeviceMesh&) = delete;
  DeviceMesh& operator=(const DeviceMesh&) = delete;

  const std::shared_ptr<const planner::MeshLayout>& layout() const { return layout_; }
  /// Returns false on a rank of the parent that the mesh leaves out; such a rank holds empty local
  /// tensors.
  bool member() const { return rank_ >= 0; }
  /// Returns this rank's number in the mesh; -1 if it is not a member.
  int rank() const { return rank_; }
  /// Returns one coordinate per mesh dim; empty if not a member.
  const std::vector<int>& coordinates() const { return coordinates_; }
  comm::ProcessGroup& parent() const { return parent_; }
  /// Returns by mesh rank the rank of the parent: mesh rank i is this rank of the parent.
  const std::vector<int>& parent_ranks() const { return parent_ranks_; }

  /// Returns the group of the ranks that differ from this one along `mesh_dim` only. Groups are for
  /// members only: throws FailedPrecondition on another rank.
  comm::ProcessGroup& group(int mesh_dim);
  /// Returns the group of the ranks that differ along these dims only, numbered row-major in the
  /// listed order.
  comm::ProcessGroup& group(const std::vector<int>& mesh_dims);
  /// Returns the group of all ranks of the mesh in its order.
  comm::ProcessGroup& whole_group();
  /// Returns a group of all ranks of the mesh in its order, for agreements that are not to count as
  /// communication.
  comm::ProcessGroup& control_group();

  /// Returns the mesh of these dims alone that this rank is in, in the listed order, with groups
  /// and counters of its own; it lives as long as this mesh at most. A name that stands for several
  /// dims (MeshLayout::with_flattened_name, or `flattened`) gives one dim of that name. Every
  /// member calls it. Throws NotFound naming a dim that is not there.
  std::unique_ptr<DeviceMesh> sub_mesh(const std::vector<std::string>& dim_names);
  /// Makes the sub-mesh of the dims `dim_names` as one dim called `name`, which sub_mesh knows from
  /// then on.
  std::unique_ptr<DeviceMesh> flattened(const std::vector<std::string>& dim_names,
                                        const std::string& name);

  /// Sums over all groups of this mesh, by collective; a group of one rank counts nothing.
  std::map<std::string, comm::CommCounter> counters() const;
  void reset_counters();
  /// Returns the last collectives of every group, one line each under the group's name.
  std::string flight_record() const;

  const MeshFrame& frame() const { return frame_; }

  /// Returns what this rank worked out for the steps of plans it has run; for redistribution alone.
  StepCache& step_cache() { return *step_cache_; }

 private:
  /// NamedDims is one dim of a sub-mesh: the dims of this mesh that it is made of.
  struct NamedDims {
    std::string name;
    std::vector<int> dims;
  };
  std::vector<NamedDims> find_dims(const std::vector<std::string>& names) const;
  std::unique_ptr<DeviceMesh> part(const std::vector<NamedDims>& dims);

  comm::ProcessGroup& parent_;
  std::shared_ptr<const planner::MeshLayout> layout_;
  MeshFrame frame_;
  std::vector<NamedDims> flattened_;
  std::vector<int> parent_ranks_;
  int rank_ = -1;
  std::vector<int> coordinates_;
  std::unique_ptr<comm::ProcessGroup> members_;  ///< apart from those that count
  std::map<std::vector<int>, std::unique_ptr<comm::ProcessGroup>> groups_;
  std::unique_ptr<StepCache> step_cache_;
};

}  // namespace meshloom::dtensor
