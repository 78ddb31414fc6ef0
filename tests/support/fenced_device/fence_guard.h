// SPDX-License-Identifier: Apache-2.0
// The guard of all fences of this process: ends it where the host touches memory of a device.
#pragma once

#include <cstddef>

namespace meshloom::testing {

/// How many fenced devices there can be.
inline constexpr int kMostFencedDevices = 16;

/// The exit status of a process whose host code touched memory of a fenced device.
inline constexpr int kFenceExitStatus = 86;

/// From now on `bytes` of addresses at `begin` belong to the device cuda:`index`. A SIGSEGV in them
/// prints the address and the frames of the thread to stderr, and ends the process with
/// kFenceExitStatus. Signals elsewhere go to the handler that was there before.
void guard_fenced_range(int index, const std::byte* begin, std::size_t bytes);

/// The index of the fenced device that an address belongs to; -1: it is none's.
int fenced_device_at(const void* address);

}  // namespace meshloom::testing
