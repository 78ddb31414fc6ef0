// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/current_device.h"

#include <atomic>
#include <cstdint>

#include "kernels/cuda/runtime/check.h"

namespace meshloom::kernels::cuda {
namespace {

std::atomic<std::uint64_t> used_devices{0};

cudaDeviceProp properties_of(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "properties of a device");
  return properties;
}

std::uint64_t bit_of(int index) { return std::uint64_t{1} << index; }

}  // namespace

void use_device(int index) {
  thread_local int current = -1;
  if (index == current) return;
  check_internal(index >= 0 && index < 64, "cuda: device {} of a process with 64 at most", index);
  check(cudaSetDevice(index), "choice of a device");
  used_devices.fetch_or(bit_of(index));
  current = index;
}

bool is_in_use(int index) { return (used_devices.load() & bit_of(index)) != 0; }

std::string device_class(int index) {
  const cudaDeviceProp properties = properties_of(index);
  return fmt::format("sm_{}{}", properties.major, properties.minor);
}

bool has_float8_products(int index) {
  constexpr int kFirst = 89;
  const cudaDeviceProp properties = properties_of(index);
  return properties.major * 10 + properties.minor >= kFirst;
}

}  // namespace meshloom::kernels::cuda
