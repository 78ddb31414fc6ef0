// SPDX-License-Identifier: Apache-2.0
// New tensors with a layout. Each rank makes its own part; nothing is sent.
#pragma once

#include "daemon/dtensor/distributed_engine.h"
#include "kernels/base/philox.h"

namespace meshloom::dtensor {

/// All factories take these. Partial placements are refused with InvalidArgument, as is another
/// number of placements than mesh dims. Ranks outside the mesh hold empty parts.
struct FactoryOptions {
  ExecutionContext& context;
  DistributedEngine& engine;
  planner::Placements placements;
  DType dtype = DType::kFloat32;
  planner::ShardOrder order = {};
};

Tensor empty(const Shape& shape, const FactoryOptions& options);
Tensor zeros(const Shape& shape, const FactoryOptions& options);
Tensor ones(const Shape& shape, const FactoryOptions& options);
Tensor full(const Shape& shape, double value, const FactoryOptions& options);
/// Element i of the global tensor (row-major) takes value i of `random`, so that every mesh and
/// every sharding gives the same tensor: uniform in [0, 1), normal with mean 0 and deviation 1.
Tensor rand(const Shape& shape, const PhiloxStream& random, const FactoryOptions& options);
Tensor randn(const Shape& shape, const PhiloxStream& random, const FactoryOptions& options);

}  // namespace meshloom::dtensor
