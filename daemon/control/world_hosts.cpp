// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/world_hosts.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>

#include "kernels/backend_table.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

/// What one rank tells of its host.
struct RankView {
  base::MemoryLimit limit;
  train::HostDevices devices;
};

train::HostDevices own_devices() {
  train::HostDevices own;
  const std::vector<int> indices = kernels::device_indices(DeviceKind::kCuda);
  if (indices.empty()) own.trouble = kernels::missing_text(DeviceKind::kCuda);
  for (const int index : indices) {
    const Device device{DeviceKind::kCuda, index};
    try {
      const kernels::Backend& backend = kernels::backend_for(device);
      own.cuda.push_back({index, backend.describe().compute_class, backend.memory().all});
    } catch (const std::exception& error) {
      own.trouble = fmt::format("{}: {}", to_string(device), error.what());
      spdlog::warn("a device is left out: {}", own.trouble);
    }
  }
  std::replace(own.trouble.begin(), own.trouble.end(), '\n', ' ');
  return own;
}

/// A line of the memory and one of the trouble, then a line for each device.
std::string to_text(const RankView& view) {
  std::string text =
      fmt::format("{} {}\n{}\n", view.limit.bytes, view.limit.source, view.devices.trouble);
  for (const train::CudaDevice& device : view.devices.cuda)
    text += fmt::format("{} {} {}\n", device.index, device.memory_bytes, device.compute_class);
  return text;
}

RankView from_text(const std::string& text) {
  RankView view;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  std::istringstream memory(line);
  memory >> view.limit.bytes;
  std::getline(memory >> std::ws, view.limit.source);
  std::getline(lines, view.devices.trouble);
  while (std::getline(lines, line)) {
    std::istringstream in(line);
    train::CudaDevice device;
    in >> device.index >> device.memory_bytes;
    std::getline(in >> std::ws, device.compute_class);
    view.devices.cuda.push_back(std::move(device));
  }
  return view;
}

/// Takes over the least of the memory that is known.
void keep_least_memory(const train::CudaDevice& other, train::CudaDevice* device) {
  const bool less = device->memory_bytes == 0 || other.memory_bytes < device->memory_bytes;
  if (other.memory_bytes > 0 && less) device->memory_bytes = other.memory_bytes;
}

void add_trouble(const std::string& trouble, train::HostDevices* host) {
  if (host->trouble.find(trouble) != std::string::npos) return;  // nothing, or told already
  host->trouble += (host->trouble.empty() ? "" : "; ") + trouble;
}

/// Leaves the devices that another rank of the host has, too, and that are of one class for both.
void keep_common(const train::HostDevices& others, train::HostDevices* host) {
  add_trouble(others.trouble, host);
  std::erase_if(host->cuda, [&](train::CudaDevice& device) {
    const auto other =
        std::find_if(others.cuda.begin(), others.cuda.end(),
                     [&](const train::CudaDevice& item) { return item.index == device.index; });
    if (other == others.cuda.end()) return true;
    keep_least_memory(*other, &device);
    if (other->compute_class == device.compute_class) return false;
    add_trouble(fmt::format("{} is of class {} for one rank and of class {} for another",
                            to_string(Device{DeviceKind::kCuda, device.index}),
                            device.compute_class, other->compute_class),
                host);
    return true;
  });
}

}  // namespace

WorldHosts gather_hosts(comm::Bootstrap& bootstrap, const comm::Topology& topology) {
  const auto texts = bootstrap.exchange(to_text({base::memory_limit(), own_devices()}));
  const auto count = static_cast<std::size_t>(topology.hosts);
  WorldHosts hosts{std::vector<HostMemory>(count), train::WorldDevices(count)};
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const comm::RankPlace& place = topology.ranks[rank];
    RankView view = from_text(texts[rank]);
    HostMemory& memory = hosts.memory[static_cast<std::size_t>(place.host)];
    memory.name = place.hostname;
    memory.ranks = place.local_size;
    if (view.limit.bytes > 0 && (memory.limit.bytes == 0 || view.limit.bytes < memory.limit.bytes))
      memory.limit = view.limit;
    train::HostDevices& devices = hosts.devices[static_cast<std::size_t>(place.host)];
    if (place.local_rank == 0)
      devices = std::move(view.devices);
    else
      keep_common(view.devices, &devices);
    devices.host = place.hostname;
    devices.ranks = place.local_size;
  }
  if (bootstrap.rank() == 0)
    for (const train::HostDevices& host : hosts.devices)
      if (host.cuda.empty())
        spdlog::info("host {} has no cuda device, auto is cpu: {}", host.host, host.trouble);
  return hosts;
}

}  // namespace meshloom::control
