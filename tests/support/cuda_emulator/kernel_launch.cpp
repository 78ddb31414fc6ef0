// SPDX-License-Identifier: Apache-2.0
// Launches of kernels: what the architecture refuses, and how the rest is queued.
#include <fmt/format.h>

#include <cstring>
#include <map>
#include <vector>

#include "tests/support/cuda_emulator/architecture.h"
#include "tests/support/cuda_emulator/device/emulated_launch.h"
#include "tests/support/cuda_emulator/running_block.h"
#include "tests/support/cuda_emulator/runtime_call.h"
#include "tests/support/cuda_emulator/source_place.h"

namespace meshloom::emulator {
namespace {

// CUDA's own limit, since 12.1.
constexpr std::size_t kMostArgumentBytes = 32764;
constexpr std::uint64_t kMostBlocksX = 0x7fffffff;
constexpr unsigned kMostBlocksYZ = 65535;
constexpr unsigned kMostThreadsZ = 64;

/// By kernel, how much dynamic shared memory cudaFuncSetAttribute allowed.
std::map<const void*, std::size_t>& allowed_shared() {
  static auto& allowed = *new std::map<const void*, std::size_t>;
  return allowed;
}

[[noreturn]] void refuse(const Launch& launch, cudaError_t error, const std::string& what) {
  throw FaultError(error, fmt::format("launch of {}: {}", function_name(launch.kernel), what));
}

void check_sizes(const Launch& launch) {
  const dim3 grid = launch.grid, block = launch.block;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  const bool empty = threads == 0 || grid.x == 0 || grid.y == 0 || grid.z == 0;
  if (empty || threads > kMostThreads || block.z > kMostThreadsZ || grid.x > kMostBlocksX ||
      grid.y > kMostBlocksYZ || grid.z > kMostBlocksYZ)
    refuse(launch, cudaErrorInvalidConfiguration,
           fmt::format("a grid of ({}, {}, {}) blocks of ({}, {}, {}) threads, expected 1 to {} "
                       "threads, {} in z, and 1 to ({}, {}, {}) blocks",
                       grid.x, grid.y, grid.z, block.x, block.y, block.z, kMostThreads,
                       kMostThreadsZ, kMostBlocksX, kMostBlocksYZ, kMostBlocksYZ));
}

void check_shared(const Launch& launch) {
  const auto allowed = allowed_shared().find(launch.kernel);
  const std::size_t most =
      allowed == allowed_shared().end() ? SharedMemory::kUsual : allowed->second;
  if (launch.shared > most)
    refuse(launch, cudaErrorInvalidValue,
           fmt::format("{} bytes of dynamic shared memory, expected at most {} (more where "
                       "cudaFuncSetAttribute allows it)",
                       launch.shared, most));
}

}  // namespace

cudaError_t allow_dynamic_shared(const void* kernel, std::size_t bytes) {
  return runtime_call([&] {
    current_device();
    if (bytes > architecture().shared_bytes)
      throw FaultError(cudaErrorInvalidValue,
                       fmt::format("{}: {} bytes of dynamic shared memory, expected at most {} of "
                                   "compute capability {}",
                                   function_name(kernel), bytes, architecture().shared_bytes,
                                   architecture().sm));
    allowed_shared()[kernel] = std::max(bytes, SharedMemory::kUsual);
  });
}

cudaError_t launch_kernel(const Launch& launch, cudaStream_t stream) {
  return runtime_call([&] {
    CUstream_st& open = open_stream(stream);
    if (open.device != &current_device())
      refuse(launch, cudaErrorInvalidResourceHandle, "a stream of another device");
    check_sizes(launch);
    check_shared(launch);
    if (launch.argument_bytes > kMostArgumentBytes)
      refuse(launch, cudaErrorInvalidValue,
             fmt::format("{} bytes of arguments, expected at most {}", launch.argument_bytes,
                         kMostArgumentBytes));
    // A vector's memory is aligned as any type of an argument is.
    std::vector<std::max_align_t> arguments(launch.argument_bytes / sizeof(std::max_align_t) + 1);
    std::memcpy(arguments.data(), launch.arguments, launch.argument_bytes);
    machine().give(open, {nullptr, launch.kernel},
                   [launch, arguments = std::move(arguments)](EmulatedDevice& device) {
                     Launch queued = launch;
                     queued.arguments = arguments.data();
                     run_grid(queued, device.memory, device.history, machine().random());
                   });
  });
}

}  // namespace meshloom::emulator

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  using namespace meshloom::emulator;
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && value >= 0)
    return allow_dynamic_shared(kernel, static_cast<std::size_t>(value));
  return remember(cudaErrorInvalidValue,
                  fmt::format("cudaFuncSetAttribute of attribute {} with {}, of which the emulated "
                              "device has but the dynamic shared memory",
                              static_cast<int>(attribute), value));
}
