// SPDX-License-Identifier: Apache-2.0
// Ranks as threads with a fenced device each, and contexts on the device of a rank's world.
#pragma once

#include <functional>
#include <optional>

#include "tests/support/fenced_device/fenced_device.h"
#include "tests/support/thread_ranks.h"

namespace meshloom::testing {

/// Options of a context whose work is in order with the calls of `world`, on the CPU where that has
/// no device.
inline ExecutionContext::Options context_of(const comm::ProcessGroup& world) {
  return on_device(world.device());
}

/// Fenced device `index` of this process, with a stream of its own.
inline comm::GroupDevice fenced_group_device(int index) {
  return make_group_device({DeviceKind::kCuda, index});
}

/// Runs ranks as run_ranks does, on fenced devices whatever the test program runs on.
inline void run_fenced_ranks(int world_size, const std::function<void(comm::ProcessGroup&)>& body) {
  run_ranks_on([](int rank) { return std::optional(fenced_group_device(rank)); }, world_size, body);
}

}  // namespace meshloom::testing
