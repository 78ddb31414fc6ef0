// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/emulator.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "tests/support/cuda_emulator/access_check.h"
#include "tests/support/cuda_emulator/launch_records.h"
#include "tests/support/cuda_emulator/runtime_call.h"

namespace meshloom::emulator {
namespace {

void change(const void* data, std::size_t bytes, bool live) {
  const std::lock_guard lock(machine().mutex);
  EmulatedDevice* const device = machine().device_at(data);
  if (device == nullptr) return;
  const auto* const begin = static_cast<const std::byte*>(data);
  const Position position = machine().next_position();
  live ? device->memory.unpoison(begin, bytes, position)
       : device->memory.poison(begin, bytes, position);
}

}  // namespace

void poison(const void* data, std::size_t bytes) { change(data, bytes, false); }
void unpoison(const void* data, std::size_t bytes) { change(data, bytes, true); }

cudaError_t queue_library_call(cudaStream_t stream, const char* name, std::vector<MemoryUse> uses,
                               std::function<void()> work) {
  return runtime_call([&] {
    machine().give(open_stream(stream), {name},
                   [name, uses = std::move(uses), work = std::move(work)](EmulatedDevice& device) {
                     for (const MemoryUse& use : uses)
                       check_range(device.memory, device.history, use.data, use.bytes,
                                   use.writes ? Access::kWrite : Access::kRead);
                     try {
                       work();
                     } catch (const std::exception& error) {
                       throw FaultError(cudaErrorLaunchFailure,
                                        fmt::format("{}: {}", name, error.what()));
                     }
                   });
  });
}

void set_seed(std::uint64_t seed) {
  const std::lock_guard lock(machine().mutex);
  machine().set_seed(seed);
}

std::vector<std::string> take_faults() {
  const std::lock_guard lock(machine().mutex);
  return machine().take_faults();
}

void record_launches() {
  const std::lock_guard lock(machine().mutex);
  launch_records().start();
}

std::vector<KernelRecord> recorded_launches() {
  const std::lock_guard lock(machine().mutex);
  return launch_records().records();
}

}  // namespace meshloom::emulator
