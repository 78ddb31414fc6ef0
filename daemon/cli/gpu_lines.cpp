// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/gpu_lines.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace meshloom::cli {

std::vector<std::string> gpu_lines(const v1::ListWorkersResponse& response) {
  std::vector<std::pair<std::string, std::vector<int>>> gpus;
  for (const v1::Worker& worker : response.workers()) {
    if (worker.gpu().empty()) continue;
    auto known = std::find_if(gpus.begin(), gpus.end(),
                              [&](const auto& gpu) { return gpu.first == worker.gpu(); });
    if (known == gpus.end()) known = gpus.insert(gpus.end(), {worker.gpu(), std::vector<int>{}});
    known->second.push_back(worker.rank());
  }
  std::vector<std::string> lines;
  for (const auto& [text, ranks] : gpus)
    lines.push_back(fmt::format("gpu of rank{} {}: {}", ranks.size() == 1 ? "" : "s",
                                fmt::join(ranks, ", "), text));
  return lines;
}

}  // namespace meshloom::cli
