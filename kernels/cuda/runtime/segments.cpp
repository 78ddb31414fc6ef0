// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/segments.h"

#include <string>

#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/current_device.h"
#include "kernels/cuda/runtime/memory_watch.h"

namespace meshloom::kernels::cuda {
namespace {

/// What the two kinds share: segments that do not grow.
class CudaSource : public SegmentSource {
 public:
  explicit CudaSource(int index) : index_(index) {}

  bool extend(std::byte*, std::size_t, std::size_t) final { return false; }

  std::byte* acquire(std::size_t bytes) final {
    use_device(index_);
    void* data = nullptr;
    const cudaError_t error = allocate(&data, bytes);
    if (error == cudaErrorMemoryAllocation) refuse(bytes);
    check(error, "allocation");
    return static_cast<std::byte*>(data);
  }

  // The runtime may free memory that kernels still use. Owners call it at their end, where a device
  // that has failed is only told of.
  void release(std::byte* data, std::size_t) final {
    log_failure([&] {
      use_device(index_);
      check(cudaDeviceSynchronize(), "wait before memory is freed");
      check(free(data), "freeing of memory");
    });
  }

 protected:
  virtual cudaError_t allocate(void** data, std::size_t bytes) = 0;
  virtual cudaError_t free(void* data) = 0;
  virtual std::string refusal_text(std::size_t bytes) const = 0;

  int index() const { return index_; }

 private:
  [[noreturn]] void refuse(std::size_t bytes) const {
    cudaGetLastError();  // it is this call's alone
    throw ResourceExhausted("allocator: " + refusal_text(bytes), "OUT_OF_MEMORY",
                            {{"bytes", std::to_string(bytes)}});
  }

  int index_;
};

class DeviceSource final : public CudaSource {
 public:
  using CudaSource::CudaSource;

  Device device() const override { return {DeviceKind::kCuda, index()}; }
  std::size_t granularity() const override { return kDeviceGranularity; }
  std::size_t guard_bytes() const override { return watched_guard_bytes(); }
  void unused(std::byte* data, std::size_t bytes) override { watch_unused(data, bytes); }
  void used(std::byte* data, std::size_t bytes) override { watch_used(data, bytes); }

 private:
  cudaError_t allocate(void** data, std::size_t bytes) override { return cudaMalloc(data, bytes); }
  cudaError_t free(void* data) override { return cudaFree(data); }
  std::string refusal_text(std::size_t bytes) const override {
    std::size_t free_bytes = 0, all_bytes = 0;
    cudaMemGetInfo(&free_bytes, &all_bytes);
    return fmt::format("{} refused {} more bytes of memory, {} of {} are free", to_string(device()),
                       bytes, free_bytes, all_bytes);
  }
};

/// Memory of the host belongs to the CPU, whichever device copies.
class PinnedSource final : public CudaSource {
 public:
  using CudaSource::CudaSource;

  Device device() const override { return kCpuDevice; }
  std::size_t granularity() const override { return kPinnedGranularity; }

 private:
  cudaError_t allocate(void** data, std::size_t bytes) override {
    return cudaMallocHost(data, bytes);
  }
  cudaError_t free(void* data) override { return cudaFreeHost(data); }
  std::string refusal_text(std::size_t bytes) const override {
    return fmt::format("the system refused {} more bytes of pinned memory", bytes);
  }
};

}  // namespace

std::unique_ptr<SegmentSource> make_cuda_source(int index, MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kDevice: return std::make_unique<DeviceSource>(index);
    case MemoryKind::kHost: return std::make_unique<PinnedSource>(index);
    default: break;
  }
  throw Unimplemented("cuda: peers make symmetric memory together; a backend has none");
}

}  // namespace meshloom::kernels::cuda
