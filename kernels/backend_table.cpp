// SPDX-License-Identifier: Apache-2.0
#include "kernels/backend_table.h"

#include <fmt/ranges.h>

#include <map>
#include <string>
#include <utility>

#include "kernels/base/error.h"

namespace meshloom::kernels {
namespace {

using Table = std::map<std::pair<DeviceKind, int>, std::function<Backend&()>>;

Table& table() {
  static Table devices;
  return devices;
}

std::map<DeviceKind, std::string>& missing() {
  static std::map<DeviceKind, std::string> reasons;
  return reasons;
}

}  // namespace

void add_device(Device device, std::function<Backend&()> backend) {
  const bool added =
      table().emplace(std::pair(device.kind, device.index), std::move(backend)).second;
  check_internal(added, "device {} is in the table already", to_string(device));
}

Backend& backend_for(Device device) {
  const auto found = table().find({device.kind, device.index});
  if (found != table().end()) return found->second();
  std::vector<std::string> there;
  for (const int index : device_indices(device.kind))
    there.push_back(to_string(Device{device.kind, index}));
  const std::string known = there.empty() ? missing_text(device.kind)
                                          : fmt::format("there is {}", fmt::join(there, ", "));
  throw Unimplemented(fmt::format("device {}: {}", to_string(device), known), "NO_DEVICE");
}

void note_missing(DeviceKind kind, std::string why) { missing()[kind] = std::move(why); }

std::string missing_text(DeviceKind kind) {
  const auto noted = missing().find(kind);
  if (noted != missing().end()) return noted->second;
  return fmt::format("this program has no {} backend", kind_name(kind));
}

std::vector<int> device_indices(DeviceKind kind) {
  std::vector<int> indices;
  for (const auto& [device, backend] : table())
    if (device.first == kind) indices.push_back(device.second);
  return indices;
}

}  // namespace meshloom::kernels
