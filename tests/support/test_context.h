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

/// A device of the table with a stream of its own.
inline comm::GroupDevice make_group_device(Device device) {
  kernels::Backend& backend = kernels::backend_for(device);
  return {device, &backend, backend.make_stream(device)};
}

/// Options of a context whose work is in order with the calls of groups on `device`; without one
/// they stay as they are.
inline ExecutionContext::Options on_device(const std::optional<comm::GroupDevice>& device,
                                           ExecutionContext::Options options = {}) {
  if (!device) return options;
  options.device = device->device;
  options.backend = device->backend;
  options.stream = device->stream;
  return options;
}

/// The device of the rank that this thread is: of rank 0 if nobody says another one. None on the
/// CPU.
inline thread_local std::optional<comm::GroupDevice> rank_device;

/// The device of a rank of a test program that does not run on the CPU.
inline std::optional<comm::GroupDevice> test_group_device(int rank) {
  const Device device = test_device(rank);
  return device == kCpuDevice ? std::nullopt : std::optional(make_group_device(device));
}

/// Returns options on the device of this thread's rank, and in order with its world.
inline ExecutionContext::Options on_test_device(ExecutionContext::Options options = {}) {
  if (!rank_device) rank_device = test_group_device(0);
  return on_device(rank_device, std::move(options));
}

class TestContext : public ExecutionContext {
 public:
  explicit TestContext(Options options = {})
      : ExecutionContext(on_test_device(std::move(options))) {}
};

}  // namespace meshloom::testing
