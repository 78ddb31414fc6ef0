// SPDX-License-Identifier: Apache-2.0
// The one function that the plugin exports.
#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <mutex>
#include <string>

#include "kernels/base/error.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/plugin/plugin_interface.h"

namespace meshloom::kernels::cuda {
namespace {

constexpr int kMostDevices = 64;

/// Never destroyed: memory of a device may be owned by something static.
CudaBackend& backend_of(int index) {
  struct Made {
    std::mutex mutex;
    std::array<std::unique_ptr<CudaBackend>, kMostDevices> backends;
  };
  static auto* const made = new Made;
  const std::lock_guard lock(made->mutex);
  auto& backend = made->backends[static_cast<std::size_t>(index)];
  if (!backend) backend = std::make_unique<CudaBackend>(index);
  return *backend;
}

/// The runtime says the same of a driver that is too old and of one whose library is missing.
std::string driver_advice() {
  constexpr int kCuda = CUDART_VERSION / 1000;
  constexpr int kDriver = kCuda >= 13 ? 580 : 525;
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0)
    return fmt::format(
        "the NVIDIA driver's library libcuda.so.1 cannot be opened: install driver "
        "{} or newer; in a container, start it with --gpus all",
        kDriver);
  return fmt::format(
      "the NVIDIA driver is for CUDA {}.{}, but CUDA {} is needed: install driver "
      "{} or newer",
      version / 1000, version % 1000 / 10, kCuda, kDriver);
}

/// What the driver's refusal asks of a user.
std::string advice_for(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver: return driver_advice();
    case cudaErrorNoDevice:
      return "the NVIDIA driver finds no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES";
    case cudaErrorSystemDriverMismatch:
      return "the NVIDIA driver's library and its kernel module differ: restart the machine";
    default:
      return fmt::format("the NVIDIA driver does not start: {} ({}); check nvidia-smi",
                         cudaGetErrorString(error), cudaGetErrorName(error));
  }
}

}  // namespace
}  // namespace meshloom::kernels::cuda

extern "C" __attribute__((visibility("default"))) std::uint32_t meshloom_plugin(
    std::uint32_t abi, meshloom::kernels::PluginHost& host) {
  using namespace meshloom::kernels;
  if (abi != kPluginAbi) return kPluginAbi;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0)
    throw meshloom::FailedPrecondition(
        cuda::advice_for(error != cudaSuccess ? error : cudaErrorNoDevice), "NO_DEVICE");
  for (int index = 0; index < count && index < cuda::kMostDevices; ++index)
    host.add_device({meshloom::DeviceKind::kCuda, index},
                    [index]() -> Backend& { return cuda::backend_of(index); });
  return kPluginAbi;
}
