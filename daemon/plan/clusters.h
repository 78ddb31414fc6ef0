// SPDX-License-Identifier: Apache-2.0
// The machine that a plan is for: one of configs/clusters, compiled in, or a file like them.
#pragma once

#include <string>
#include <vector>

#include "planner/estimate/machine.h"
#include "v1/plan.pb.h"

namespace meshloom::plan {

/// Returns the names, sorted: "a100", "cpu_cluster", ...
std::vector<std::string> cluster_names();

/// Throws NotFound that lists the names.
v1::Cluster named_cluster(const std::string& name);

/// Reads a file, or else a name. Throws with file and line for a mistake.
v1::Cluster read_cluster(const std::string& cluster);

/// Makes a machine. `source`: what it is called if it has no name of its own. Rates are checked by
/// the planner. Throws InvalidArgument.
planner::Machine make_machine(const v1::Cluster& cluster, const std::string& source);

}  // namespace meshloom::plan
