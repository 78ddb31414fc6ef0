// SPDX-License-Identifier: Apache-2.0
// What the device is, and its memory and time; the kernels are in the files of their topics.
#include "kernels/cuda/cuda_backend.h"

#include <fstream>
#include <string>

#include "kernels/cuda/attention/attention_table.h"
#include "kernels/cuda/matmul/matmul_table.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/current_device.h"
#include "kernels/cuda/runtime/library_versions.h"
#include "kernels/cuda/runtime/segments.h"
#include "kernels/cuda/runtime/streams.h"

namespace meshloom::kernels::cuda {
namespace {

/// It changes with the choices between kernels that the host makes by shapes and dtypes; those of
/// attention and of products have versions of their own.
constexpr int kChoicesVersion = 1;

/// Below it there is no bfloat16, and no kernel is compiled.
constexpr int kLeastMajor = 8;

/// "13.0"
std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// "driver 580.65.06 (CUDA 13.0)". The runtime knows the second alone.
std::string driver_text() {
  int version = 0;
  check(cudaDriverGetVersion(&version), "version of the driver");
  std::string module;
  std::ifstream("/sys/module/nvidia/version") >> module;
  return fmt::format("driver{}{} (CUDA {})", module.empty() ? "" : " ", module,
                     cuda_version_text(version));
}

std::string runtime_text() {
  int version = 0;
  check(cudaRuntimeGetVersion(&version), "version of the runtime");
  return "CUDA " + cuda_version_text(version);
}

}  // namespace

CudaBackend::CudaBackend(int index) : index_(index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "properties of a device");
  if (properties.major < kLeastMajor)
    throw FailedPrecondition(
        fmt::format("{} has compute capability {}.{}, but {}.0 or higher is needed: use another "
                    "GPU, or run.device cpu",
                    properties.name, properties.major, properties.minor, kLeastMajor),
        "DEVICE_TOO_OLD");
  const std::string own_class = device_class(index);
  description_ = {own_class, own_class,
                  fmt::format("{}.{}.{}, {}", kChoicesVersion, kAttentionTableVersion,
                              matmul_table_version(), library_versions()),
                  fmt::format("{}, {}, {}, {}", properties.name, driver_text(), runtime_text(),
                              library_versions())};
  all_memory_ = static_cast<std::int64_t>(properties.totalGlobalMem);
}

CudaBackend::~CudaBackend() = default;

ComputeDescription CudaBackend::describe() const { return description_; }

DType CudaBackend::fast_dtype(std::int64_t) const { return DType::kBFloat16; }

std::unique_ptr<SegmentSource> CudaBackend::make_source(MemoryKind kind, Threads) {
  return make_cuda_source(index_, kind);
}

// The runtime tells what is free only by a context, which takes hundreds of MB: before the process
// computes on the device, all of its memory counts as free.
DeviceMemory CudaBackend::memory() const {
  if (!is_in_use(index_)) return {all_memory_, all_memory_};
  use_device(index_);
  std::size_t free_bytes = 0, all_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &all_bytes), "memory of a device");
  return {static_cast<std::int64_t>(free_bytes), all_memory_};
}

std::shared_ptr<OwnedStream> CudaBackend::make_stream(Device device) {
  check_internal(device == Device{DeviceKind::kCuda, index_},
                 "cuda: a stream of {} is asked of the backend of cuda:{}", to_string(device),
                 index_);
  return make_device_stream(index_);
}

std::unique_ptr<Event> CudaBackend::make_event() { return make_device_event(index_); }

void CudaBackend::wait_event(const Stream& stream, Event& event) {
  order_behind_event(stream, event);
}

}  // namespace meshloom::kernels::cuda
