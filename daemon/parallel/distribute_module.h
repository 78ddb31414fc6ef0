// SPDX-License-Identifier: Apache-2.0
// distribute_module: a module's parameters laid out by a function, if no style fits.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "daemon/dtensor/distributed_engine.h"
#include "daemon/nn/module.h"

namespace meshloom::parallel {

/// PartitionFunction gives the placements of a parameter by its full name, or nothing: replicated.
using PartitionFunction =
    std::function<std::optional<planner::Placements>(const std::string& name, const Tensor& value)>;

struct DistributeModuleOptions {
  PartitionFunction partition = {};      ///< empty: everything is replicated
  nn::ForwardHook hook = {};             ///< lays out the module's inputs, takes outputs back
  std::optional<int> src_data_rank = 0;  ///< as in distribute_tensor
};

/// Gives every parameter of the module a layout on the engine's mesh, in order of registration;
/// every rank calls it, before the optimizer is made. Parameters have memory. Throws
/// FailedPrecondition naming the first parameter that has a layout already (a module is distributed
/// once), and what distribute_tensor throws, before any collective if placements do not fit.
void distribute_module(nn::Module& module, dtensor::DistributedEngine& engine,
                       const DistributeModuleOptions& options = {});

}  // namespace meshloom::parallel
