// SPDX-License-Identifier: Apache-2.0
// RunMesh: the mesh of a run and the groups that a rank has in it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "daemon/dtensor/device_mesh.h"
#include "daemon/parallel/data_parallel.h"
#include "planner/dtensor_spec.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// GroupCounters are by group (the mesh dims it spans, "world") and collective.
using GroupCounters = std::map<std::pair<std::string, std::string>, comm::CommCounter>;

/// Returns the mesh dims dp, fsdp, cp and tp over all ranks of the world, row-major in this order.
planner::MeshLayout mesh_layout(const v1::Mesh& resolved);

/// Every rank of the world makes it at the same moment. Groups have one member if the mesh lacks
/// their dims.
class RunMesh {
 public:
  /// `layout` has dims named from dp, fsdp, cp and tp in any order, over the whole world, which
  /// outlives the mesh. Throws, on every rank alike and before any collective, InvalidArgument
  /// naming a dim with another name and FailedPrecondition (MESH_SIZE) if the world has another
  /// size.
  RunMesh(comm::ProcessGroup& world, planner::MeshLayout layout);

  const planner::MeshPtr& layout() const { return mesh_.layout(); }
  const std::vector<int>& coordinates() const { return mesh_.coordinates(); }
  comm::ProcessGroup& world() const { return world_; }
  /// Returns the group of the ranks that have other samples than this one: dp x fsdp.
  comm::ProcessGroup& data() const { return *data_; }
  /// Returns the group of the ranks that have parts of the same samples' sequences: cp.
  comm::ProcessGroup& sequence() const { return *sequence_; }
  /// Returns the group of the ranks that compute the same tokens together: tp.
  comm::ProcessGroup& tensor() const { return *tensor_; }
  /// Returns the group of the ranks that share samples: cp x tp. A model's layouts live on
  /// sample_mesh().
  comm::ProcessGroup& same_samples() const { return *same_samples_; }
  /// Returns the mesh of the dims cp, if it has more than one rank, and tp. Null if there is
  /// neither.
  dtensor::DeviceMesh* sample_mesh() { return sample_mesh_.get(); }
  /// Returns the group of the ranks whose gradients are summed, since they have computed other
  /// tokens: dp x fsdp x cp.
  comm::ProcessGroup& gradients() const { return *gradients_; }
  /// Returns the group of the ranks among which parameters are sharded: fsdp x tp, and cp where
  /// fully_shard shards over it.
  comm::ProcessGroup& model() const { return *model_; }

  /// Returns the mesh on which parameters and their states lie: that of the run, but that fsdp and
  /// cp are one dim, fsdp_cp, if both have several ranks and are neighbours in the mesh. Then
  /// fully_shard shards over both, since ranks of cp compute other tokens with the same parameters.
  const planner::MeshPtr& state_layout() const { return state_layout_; }
  /// This rank's, in state_layout().
  std::vector<int> state_coordinates() const;
  /// Returns the dim of state_layout() that fully_shard shards over, if there is such a dim.
  std::optional<int> shard_dim() const;
  /// Tells whether this rank speaks for those that share its samples.
  bool leads_samples() const { return same_samples_->rank() == 0; }
  /// Tells whether this rank is one of the first copy of the model along dp: of fsdp x cp x tp.
  bool in_first_copy() const;
  parallel::DataParallelGroups data_parallel_groups() const {
    return {gradients_, gathers_.get(), reductions_.get(), replicas_};
  }

  /// Returns what this rank's groups have done.
  GroupCounters counters() const;

 private:
  comm::ProcessGroup& group_of(std::initializer_list<const char*> names);
  void make_sample_mesh();
  void make_state_layout();
  /// Returns the mesh dims that shard_dim() stands for.
  std::vector<int> shard_dims() const;
  /// Tells whether fsdp and cp are one dim of state_layout().
  bool shards_over_sequence() const { return state_layout_ != mesh_.layout(); }

  comm::ProcessGroup& world_;
  dtensor::DeviceMesh mesh_;
  std::unique_ptr<dtensor::DeviceMesh> sample_mesh_;
  planner::MeshPtr state_layout_;
  /// Along shard_dim(), for fully_shard alone.
  std::unique_ptr<comm::ProcessGroup> gathers_, reductions_;
  comm::ProcessGroup *data_, *sequence_, *gradients_, *replicas_, *tensor_, *same_samples_, *model_;
};

}  // namespace meshloom::train
