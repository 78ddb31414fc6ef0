// SPDX-License-Identifier: Apache-2.0
// Ranks as threads with a fenced device each, and contexts on the device of a rank's world.
#pragma once

#include <functional>

#include "daemon/comm/mesh/thread_bootstrap.h"
#include "daemon/tensor/execution_context.h"
#include "tests/support/fenced_device/fenced_device.h"

namespace meshloom::testing {

/// Options of a context whose work is in order with the calls of `world`: on its device and stream,
/// or on the CPU where it has none.
inline ExecutionContext::Options context_of(const comm::ProcessGroup& world) {
  ExecutionContext::Options options;
  if (const auto device = world.device()) {
    options.device = device->device;
    options.backend = device->backend;
    options.stream = device->stream;
  }
  return options;
}

/// Fenced device `index` of this process, with a stream of its own.
inline comm::GroupDevice fenced_group_device(int index) {
  kernels::Backend& backend = fenced_device(index);
  const Device device{DeviceKind::kCuda, index};
  return {device, &backend, backend.make_stream(device)};
}

/// As run_ranks, with a world whose calls may show the rank's own device.
inline void run_fenced_ranks(int world_size, const std::function<void(comm::ProcessGroup&)>& body) {
  comm::run_thread_ranks(world_size, [&](comm::RankRuntime& runtime) {
    comm::GroupOptions options;
    options.device = fenced_group_device(runtime.rank());
    const auto world = runtime.make_world_group(options);
    body(*world);
    runtime.bootstrap().barrier();
  });
}

}  // namespace meshloom::testing
