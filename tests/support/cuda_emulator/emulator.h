// SPDX-License-Identifier: Apache-2.0
// The emulated devices, as allocators, libraries and tests see them beside CUDA's runtime.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/cuda_emulator/kernel_record.h"

namespace meshloom::emulator {

/// For allocators that hand out pieces of what cudaMalloc gave them. From here on nothing may touch
/// this memory; work that was queued before may. Pieces begin at multiples of 256 bytes, and 256
/// bytes between two of them stay poisoned.
void poison(const void* data, std::size_t bytes);
/// From here on this memory may be touched again. It is undefined until it is written.
void unpoison(const void* data, std::size_t bytes);

/// Memory of the device that a call of a library reads or writes.
struct MemoryUse {
  const void* data = nullptr;
  std::size_t bytes = 0;
  bool writes = false;
};

/// Queues a call of a library, whose work on the host's processor takes the place of the device's.
/// It may use the memory that `uses` names. What it throws is a fault. `name` is never freed.
cudaError_t queue_library_call(cudaStream_t stream, const char* name, std::vector<MemoryUse> uses,
                               std::function<void()> work);

/// The seed of the order of blocks, threads and streams. Without a call it is
/// MESHLOOM_EMULATED_SEED of the environment, or 1.
void set_seed(std::uint64_t seed);
/// The texts of all faults since the last call; the devices that met them go on.
std::vector<std::string> take_faults();
/// From here on launches are recorded, by kernel, as long as the process lives.
void record_launches();
/// What ran since then.
std::vector<KernelRecord> recorded_launches();

}  // namespace meshloom::emulator
