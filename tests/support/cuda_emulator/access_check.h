// SPDX-License-Identifier: Apache-2.0
// The check of every load and store of a kernel, and of what other work of a device touches.
#pragma once

#include <cstddef>
#include <string>

#include "tests/support/cuda_emulator/device/emulated_thread.h"
#include "tests/support/cuda_emulator/device_memory.h"
#include "tests/support/cuda_emulator/work_history.h"

namespace meshloom::emulator {

enum class Access { kRead, kWrite, kAtomic };

/// An access of the running thread. `aligned`: its address must be a multiple of `bytes`. A fault
/// ends the block, and is at the place that `return_address` goes back to, or at the thread's site
/// where that is null.
void check_access(const void* address, std::size_t bytes, Access access, bool aligned,
                  const void* return_address);

/// Memory of the device that work without threads reads or writes as a whole: a copy, or a call of
/// a library. Throws FaultError.
void check_range(DeviceMemory& memory, WorkHistory& history, const void* data, std::size_t bytes,
                 Access access);

}  // namespace meshloom::emulator
