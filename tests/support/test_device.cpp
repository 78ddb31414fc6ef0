// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_device.h"

#include <algorithm>
#include <array>

namespace meshloom::testing {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"cpu", "fenced", "cuda", "cuda-emulated"};

// Set once, before any test runs.
std::string_view g_name = kNames[0];

}  // namespace

Device test_device() { return test_device(0); }

Device test_device(int rank) {
  return g_name == "cpu" ? kCpuDevice : Device{DeviceKind::kCuda, rank};
}

bool choose_test_device(std::string_view name) {
  const auto known = std::find(kNames.begin(), kNames.end(), name);
  if (known == kNames.end()) return false;
  g_name = *known;
  return true;
}

std::string_view test_device_name() { return g_name; }

}  // namespace meshloom::testing
