// SPDX-License-Identifier: Apache-2.0
// LaunchRecords: what kernels were launched, how, and what they moved, for reports and tests.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "tests/support/cuda_emulator/device/emulated_launch.h"
#include "tests/support/cuda_emulator/kernel_record.h"
#include "tests/support/cuda_emulator/traffic.h"

namespace meshloom::emulator {

/// Used under the emulator's lock. Recording halves the emulator's speed.
class LaunchRecords {
 public:
  /// Begins to record, where it does not yet.
  void start();
  /// Returns what was recorded so far, by kernel, and goes on.
  std::vector<KernelRecord> records();

  /// Null where nothing is recorded. Begins a launch.
  Traffic* begin_launch();
  void end_launch(const Launch& launch);

 private:
  std::optional<Traffic> traffic_;
  std::map<const void*, KernelRecord> kernels_;
};

LaunchRecords& launch_records();

}  // namespace meshloom::emulator
