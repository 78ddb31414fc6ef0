// SPDX-License-Identifier: Apache-2.0
// TestContext: a context on the device that the test program was started with.
#pragma once

#include <optional>
#include <utility>

#include "daemon/comm/group_device.h"
#include "daemon/tensor/execution_context.h"
#include "kernels/backend_table.h"
#include "tests/support/test_device.h"

namespace meshloom::testing {

/// The device of the rank that this thread is: of rank 0 if nobody says another one. None on the
/// CPU.
inline thread_local std::optional<comm::GroupDevice> rank_device;

inline std::optional<comm::GroupDevice> test_group_device(int rank) {
  const Device device = test_device(rank);
  if (device == kCpuDevice) return std::nullopt;
  kernels::Backend& backend = kernels::backend_for(device);
  return comm::GroupDevice{device, &backend, backend.make_stream(device)};
}

/// On the device of this thread's rank, and in order with its world.
inline ExecutionContext::Options on_test_device(ExecutionContext::Options options = {}) {
  if (!rank_device) rank_device = test_group_device(0);
  if (!rank_device) return options;
  options.device = rank_device->device;
  options.backend = rank_device->backend;
  options.stream = rank_device->stream;
  return options;
}

class TestContext : public ExecutionContext {
 public:
  explicit TestContext(Options options = {})
      : ExecutionContext(on_test_device(std::move(options))) {}
};

}  // namespace meshloom::testing
