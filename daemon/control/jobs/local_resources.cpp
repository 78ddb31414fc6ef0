// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/local_resources.h"

namespace meshloom::control {

std::int64_t host_memory_of_rank(const std::vector<HostMemory>& hosts) {
  std::int64_t least = 0;
  for (const HostMemory& host : hosts) {
    if (host.limit.bytes <= 0 || host.ranks <= 0) continue;
    const std::int64_t share = host.limit.bytes / host.ranks;
    if (least == 0 || share < least) least = share;
  }
  return least;
}

std::int64_t tensor_memory_of_rank(const LocalResources& resources, const v1::RunConfig& resolved) {
  if (!train::has_device_memory(resolved.device())) return host_memory_of_rank(resources.hosts);
  std::int64_t least = 0;
  for (const train::HostDevices& host : resources.devices)
    for (const auto& [used, ranks] : train::used_devices(resolved.device(), host)) {
      const std::int64_t share = used.memory_bytes / ranks;
      if (share > 0 && (least == 0 || share < least)) least = share;
    }
  return least;
}

}  // namespace meshloom::control
