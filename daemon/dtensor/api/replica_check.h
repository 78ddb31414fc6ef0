// SPDX-License-Identifier: Apache-2.0
// Do ranks that should hold the same hold the same bits? A debug option of training.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "daemon/dtensor/device_mesh.h"
#include "daemon/tensor/tensor.h"

namespace meshloom::dtensor {

struct NamedReplica {
  std::string name;
  Tensor tensor;  ///< plain (a replica on every rank of the mesh) or with a layout on it
};

struct ReplicaMismatch {
  std::string name;
  int rank = 0;       ///< of the mesh: the first that differs
  int reference = 0;  ///< from this one, the first holder of the same part
  std::string text() const;
};

/// The first tensor, in the order given, of which two ranks hold different bits where the layout
/// says that they hold the same; nothing where all agree. Every rank of the mesh calls it with the
/// same tensors and gets the same answer. One all_gather of eight bytes a tensor. Partial parts
/// are not replicas. Does not see differences that a 64-bit hash hides.
std::optional<ReplicaMismatch> find_replica_mismatch(std::span<const NamedReplica> tensors,
                                                     DeviceMesh& mesh);

}  // namespace meshloom::dtensor
