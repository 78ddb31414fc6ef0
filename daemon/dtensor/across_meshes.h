// SPDX-License-Identifier: Apache-2.0
// What a rank does to take a tensor from one mesh to another.
#pragma once

#include "daemon/dtensor/device_mesh.h"
#include "daemon/dtensor/step_recipe.h"
#include "planner/redistribute/planner.h"

namespace meshloom::dtensor {

/// Returns the steps of this rank, in order, worked out anew. The meshes are made on one group, or
/// cut out of meshes that are (DeviceMesh::frame): a tensor on a sub-mesh then counts as one of the
/// whole mesh, replicated over the mesh dims that the sub-mesh leaves out, so that every sub-mesh
/// of the same dims holds it. Called by all ranks of that group; if both come from one mesh, by all
/// of its members. Throws InvalidArgument, on all of them, for other meshes and for Partials that
/// the planner refuses.
Recipes recipes_across(const planner::SpecPtr& from, DeviceMesh& from_mesh,
                       const planner::SpecPtr& to, DeviceMesh& to_mesh, planner::PlanCache& plans);

}  // namespace meshloom::dtensor
