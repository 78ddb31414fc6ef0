// SPDX-License-Identifier: Apache-2.0
// parallelize_module: gives the modules of a tree the styles of a plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/nn/module.h"
#include "daemon/parallel/tensor_parallel/style_mesh.h"
#include "planner/plan/fusion.h"
#include "planner/plan/style.h"

namespace meshloom::parallel {

class FusedGroup;

struct ParallelizeOptions {
  /// The rank along the acting dims whose parameter values all ranks along them get; nullopt: each
  /// rank keeps its own part of its own values, without communication.
  std::optional<int> src_data_rank = 0;
  /// Which products take their collective along (fusion_sites.h); the same on all ranks. What is
  /// fused works over `fused`, which outlives the modules' use. Null: kForce throws.
  planner::FusionPlan fusion = {};
  FusedGroup* fused = nullptr;
};

/// The report says what became of a plan.
struct ParallelizeReport {
  /// One text for each pattern that matched nothing, naming near misses, and one for an empty plan.
  std::vector<std::string> warnings;
  /// "transformer.h.0.mlp.c_fc: ColwiseParallel" in order of the tree.
  std::vector<std::string> applied;
  /// Parameters of which a rank holds a part only.
  std::size_t sharded_parameters = 0;
};

/// Shards parameters (each becomes a leaf with a layout, whose local tensor holds this rank's part)
/// and adds hooks that bring inputs and outputs into the layouts of the styles. If several
/// patterns match a module, the best one acts (planner::best_pattern). Every rank of the mesh calls
/// it with the same arguments. Before anything is changed it throws InvalidArgument, the same on
/// every rank, naming the module and the style that does not fit it, or for a fusion that cannot
/// be, and FailedPrecondition (SYMM_MEM_UNAVAILABLE) where products are to be fused among ranks
/// that do not share memory. Parameters without memory stay so.
ParallelizeReport parallelize_module(nn::Module& root, const StyleMesh& mesh,
                                     const planner::StylePlan& plan,
                                     const ParallelizeOptions& options = {});

/// Returns or throws what parallelize_module would report or throw along such dims; nothing is
/// changed, and there need be no such ranks.
ParallelizeReport check_styles(nn::Module& root, const planner::StyleDims& dims,
                               const planner::StylePlan& plan);

/// Throws what parallelize_module would throw of such a fusion, but for memory that ranks do not
/// share.
void check_fusion(nn::Module& root, const planner::StyleDims& dims, const planner::StylePlan& plan,
                  const planner::FusionPlan& fusion);

/// Gives every parameter of the tree that has no layout yet one in which all ranks hold it whole.
void replicate_parameters(nn::Module& root, const StyleMesh& mesh,
                          const ParallelizeOptions& options = {});

}  // namespace meshloom::parallel
