// SPDX-License-Identifier: Apache-2.0
// MeshCollectives: the collectives of a mesh as distributed implementations of ops see them.
#pragma once

#include "daemon/dtensor/device_mesh.h"
#include "daemon/tensor/collectives.h"

namespace meshloom::dtensor {

/// Goes over the mesh's groups along the given dims, and is counted and recorded there. The first
/// use of several dims together makes their group, for which all members of the mesh must come.
class MeshCollectives final : public Collectives {
 public:
  /// The mesh outlives this.
  explicit MeshCollectives(DeviceMesh& mesh) : mesh_(mesh) {}

  int size(const std::vector<int>& mesh_dims) const override {
    return mesh_.group(mesh_dims).size();
  }
  int rank(const std::vector<int>& mesh_dims) const override {
    return mesh_.group(mesh_dims).rank();
  }
  PendingTensorPtr all_gather(const Tensor& x, const std::vector<int>& mesh_dims) override;
  PendingTensorPtr all_reduce(const Tensor& x, planner::PartialOp op,
                              const std::vector<int>& mesh_dims) override;
  PendingTensorPtr send_recv(const Tensor& x, int to, int from, const Shape& received,
                             const std::vector<int>& mesh_dims) override;
  PendingTensorPtr all_to_all(const Tensor& x, std::span<const std::int64_t> sent,
                              std::span<const std::int64_t> received,
                              const std::vector<int>& mesh_dims) override;
  Tensor exposable(const Tensor& x, const std::vector<int>& mesh_dims) override;
  std::unique_ptr<ExposedTensors> expose(std::span<const Tensor> tensors,
                                         planner::CollectiveKind stands_for, std::int64_t sent,
                                         const std::vector<int>& mesh_dims) override;

 private:
  DeviceMesh& mesh_;
};

}  // namespace meshloom::dtensor
