// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_device.h"

namespace meshloom::testing {
namespace {

// Set once, before any test runs.
DeviceKind g_kind = DeviceKind::kCpu;

}  // namespace

Device test_device() { return test_device(0); }

Device test_device(int rank) {
  return g_kind == DeviceKind::kCpu ? kCpuDevice : Device{g_kind, rank};
}

bool choose_test_device(std::string_view name) {
  if (name != "cpu" && name != "fenced") return false;
  g_kind = name == "cpu" ? DeviceKind::kCpu : DeviceKind::kCuda;
  return true;
}

}  // namespace meshloom::testing
