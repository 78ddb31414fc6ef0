// SPDX-License-Identifier: Apache-2.0
// The device that a benchmark computes on, as its option --device names it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "kernels/backend_table.h"
#include "kernels/base/device.h"
#include "tests/support/test_backend.h"

namespace meshloom::bench {

inline void add_device_option(CLI::App& app, std::string& device) {
  app.add_option("--device", device, "cpu, cuda, or cuda-emulated: the tests' emulated GPU")
      ->check(CLI::IsMember({"cpu", "cuda", "cuda-emulated"}))
      ->capture_default_str();
}

/// Returns the CPU or the first GPU, whose backend it loads; called once. Throws
/// FailedPrecondition, in one line, where there is none.
inline Device open_bench_device(const std::string& name) {
  if (name != "cpu") testing::load_test_backend(name);
  const Device device = name == "cpu" ? kCpuDevice : Device{DeviceKind::kCuda, 0};
  kernels::backend_for(device);
  return device;
}

}  // namespace meshloom::bench
