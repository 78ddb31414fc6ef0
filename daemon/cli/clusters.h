// SPDX-License-Identifier: Apache-2.0
// The machine that a plan is for: one of configs/clusters, compiled in, or a file like them.
#pragma once

#include <string>
#include <vector>

#include "planner/estimate/machine.h"

namespace meshloom::cli {

/// Sorted: "a100", "cpu_cluster", ...
std::vector<std::string> cluster_names();

/// `cluster`: a name or a file. Throws CliError (kUsage) with file and line for a mistake.
planner::Machine load_cluster(const std::string& cluster);

}  // namespace meshloom::cli
