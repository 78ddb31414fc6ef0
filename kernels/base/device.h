// SPDX-License-Identifier: Apache-2.0
// Where memory lives and work runs: a kind and an index.
#pragma once

#include <cstdint>
#include <string>

namespace meshloom {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;

  bool operator==(const Device&) const = default;
};

inline constexpr Device kCpuDevice{};

/// The reason of an InternalError that tells of a device which failed in the midst of its work. The
/// process cannot use the device again.
inline constexpr const char* kDeviceFailed = "DEVICE_FAILED";

/// Returns "cpu" or "cuda".
const char* kind_name(DeviceKind);
/// Returns "cpu", "cuda:0".
std::string to_string(const Device&);

}  // namespace meshloom
