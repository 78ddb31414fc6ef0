// SPDX-License-Identifier: Apache-2.0
// What CUDA's runtime says of devices and versions.
#include <fmt/format.h>

#include <cstdio>

#include "tests/support/cuda_emulator/architecture.h"
#include "tests/support/cuda_emulator/runtime_call.h"
#include "tests/support/cuda_emulator/shared_memory.h"

using namespace meshloom::emulator;

namespace {

// An H100's; nothing here depends on them.
constexpr int kProcessors = 132;
constexpr int kCacheBytes = 50 << 20;

void check_device(int device) {
  if (architecture().devices == 0)
    throw FaultError(cudaErrorNoDevice, "no CUDA-capable device is detected");
  if (device < 0 || device >= architecture().devices)
    throw FaultError(cudaErrorInvalidDevice, fmt::format("there is no device {}, there are {}",
                                                         device, architecture().devices));
}

int attribute_of(cudaDeviceAttr attribute) {
  const int sm = architecture().sm;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: return 1024;
    case cudaDevAttrMaxBlockDimX: return 1024;
    case cudaDevAttrMaxBlockDimY: return 1024;
    case cudaDevAttrMaxBlockDimZ: return 64;
    case cudaDevAttrMaxGridDimX: return 0x7fffffff;
    case cudaDevAttrMaxGridDimY: return 65535;
    case cudaDevAttrMaxGridDimZ: return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock: return static_cast<int>(SharedMemory::kUsual);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return static_cast<int>(architecture().shared_bytes);
    case cudaDevAttrMultiProcessorCount: return kProcessors;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrL2CacheSize: return kCacheBytes;
    case cudaDevAttrComputeCapabilityMajor: return sm / 10;
    case cudaDevAttrComputeCapabilityMinor: return sm % 10;
    case cudaDevAttrUnifiedAddressing: return 1;
    default:
      throw FaultError(cudaErrorInvalidValue, fmt::format("attribute {} of the emulated device",
                                                          static_cast<int>(attribute)));
  }
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  return runtime_call([&] {
    // A driver of the same major version serves all its minor ones.
    if (architecture().driver / 1000 < CUDART_VERSION / 1000)
      throw FaultError(cudaErrorInsufficientDriver,
                       "CUDA driver version is insufficient for CUDA runtime version");
    *count = architecture().devices;
    if (*count == 0) throw FaultError(cudaErrorNoDevice, "no CUDA-capable device is detected");
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return runtime_call([&] {
    check_device(device);
    *value = attribute_of(attribute);
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return runtime_call([&] {
    check_device(device);
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "Emulated GPU (sm_%d)",
                  architecture().sm);
    properties->major = architecture().sm / 10;
    properties->minor = architecture().sm % 10;
    properties->totalGlobalMem = machine().device(device).memory.total();
    properties->multiProcessorCount = kProcessors;
    properties->l2CacheSize = kCacheBytes;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->sharedMemPerBlock = SharedMemory::kUsual;
    properties->sharedMemPerBlockOptin = architecture().shared_bytes;
    properties->unifiedAddressing = 1;
    properties->pciBusID = device + 1;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = architecture().driver;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
