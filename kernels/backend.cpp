// SPDX-License-Identifier: Apache-2.0
#include "kernels/backend.h"

#include "kernels/base/error.h"
#include "kernels/cpu/cpu_backend.h"

namespace meshloom::kernels {

Backend& backend_for(Device device) {
  if (device.kind == DeviceKind::kCpu) return cpu::cpu_backend();
  throw Unimplemented("device cuda: this build has no CUDA backend");
}

}  // namespace meshloom::kernels
