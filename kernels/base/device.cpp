// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/device.h"

namespace meshloom {

const char* kind_name(DeviceKind kind) { return kind == DeviceKind::kCpu ? "cpu" : "cuda"; }

std::string to_string(const Device& device) {
  if (device == kCpuDevice) return "cpu";
  return kind_name(device.kind) + (":" + std::to_string(device.index));
}

}  // namespace meshloom
