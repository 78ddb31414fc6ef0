// SPDX-License-Identifier: Apache-2.0
// Memory of CUDA's runtime: the device's, the host's that it pins, and copies.
#include <fmt/format.h>

#include "tests/support/cuda_emulator/copies.h"
#include "tests/support/cuda_emulator/runtime_call.h"

using namespace meshloom::emulator;

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  return runtime_call([&] {
    EmulatedDevice& device = current_device();
    *data = nullptr;
    if (bytes == 0) return;
    *data = device.memory.allocate(bytes, machine().next_position());
    if (*data == nullptr)
      throw FaultError(
          cudaErrorMemoryAllocation,
          fmt::format("out of memory: {} bytes where {} of {} are free on cuda:{}", bytes,
                      device.memory.free(), device.memory.total(), device.index));
  });
}

cudaError_t cudaFree(void* data) {
  return runtime_call([&] {
    if (data == nullptr) return;
    EmulatedDevice* const device = machine().device_at(data);
    if (device == nullptr)
      throw FaultError(cudaErrorInvalidValue, "cudaFree of memory that is no device's");
    // The driver too waits for all that the device was given.
    if (!device->fault) machine().finish(*device);
    if (!device->memory.release(static_cast<std::byte*>(data)))
      throw FaultError(cudaErrorInvalidValue,
                       fmt::format("cudaFree of {}", device->memory.describe(data)));
  });
}

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return runtime_call([&] {
    current_device();
    *data = machine().pinned().allocate(bytes);
    if (*data == nullptr)
      throw FaultError(cudaErrorMemoryAllocation,
                       fmt::format("the system refused {} bytes of pinned memory", bytes));
  });
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  return cudaMallocHost(data, bytes);
}

cudaError_t cudaFreeHost(void* data) {
  return runtime_call([&] {
    if (data == nullptr) return;
    EmulatedDevice& device = current_device();
    machine().finish(device);
    if (!machine().pinned().release(static_cast<std::byte*>(data)))
      throw FaultError(cudaErrorInvalidValue, "cudaFreeHost of memory that is not pinned");
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return runtime_call([&] {
    const EmulatedDevice& device = current_device();
    *free = device.memory.free();
    *total = device.memory.total();
  });
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return runtime_call([&] {
    queue_copy(open_stream(stream), dst, src, {bytes, 1, bytes, bytes}, kind);
  });
}

cudaError_t cudaMemcpy2DAsync(void* dst, std::size_t dst_pitch, const void* src,
                              std::size_t src_pitch, std::size_t width, std::size_t rows,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return runtime_call([&] {
    if (width > dst_pitch || width > src_pitch)
      throw FaultError(
          cudaErrorInvalidValue,
          fmt::format("a copy of rows of {} bytes, {} and {} apart", width, dst_pitch, src_pitch));
    queue_copy(open_stream(stream), dst, src, {width, rows, dst_pitch, src_pitch}, kind);
  });
}

cudaError_t cudaMemsetAsync(void* dst, int value, std::size_t bytes, cudaStream_t stream) {
  return runtime_call([&] { queue_fill(open_stream(stream), dst, value, bytes); });
}
