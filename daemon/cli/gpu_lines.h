// SPDX-License-Identifier: Apache-2.0
// Which GPUs the ranks compute on, for people.
#pragma once

#include <string>
#include <vector>

#include "v1/worker_service.pb.h"

namespace meshloom::cli {

/// Returns a line for each distinct GPU, with its driver and libraries, in the order of the ranks
/// that it names: "gpu of ranks 0, 1: NVIDIA H100, driver ...". None where all ranks compute on
/// CPUs.
std::vector<std::string> gpu_lines(const v1::ListWorkersResponse& response);

}  // namespace meshloom::cli
