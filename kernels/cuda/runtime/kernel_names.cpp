// SPDX-License-Identifier: Apache-2.0
// The names of kernels, for errors. Part of the plugin alone: the emulated device launches kernels
// in its own way.
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

namespace meshloom::kernels::cuda {

// Declared by device.h, which .cu files alone can include.
void check_launch(cudaError_t error, const char* kernel);
void check_kernel(cudaError_t error, const void* kernel);

namespace {

/// The name as the compiler mangles it. It is kept by address, since each launch asks, and since a
/// device that has failed may not tell.
const char* kernel_name(const void* kernel) {
  struct Known {
    const void* kernel = nullptr;
    const char* name = nullptr;
  };
  thread_local std::array<Known, 256> names;
  Known& known = names[reinterpret_cast<std::uintptr_t>(kernel) / 16 % names.size()];
  if (known.kernel != kernel) {
    const char* name = nullptr;
    if (cudaFuncGetName(&name, kernel) != cudaSuccess || name == nullptr) name = "a kernel";
    known = {kernel, name};
  }
  return known.name;
}

}  // namespace

void check_kernel(cudaError_t error, const void* kernel) {
  check_launch(error, kernel_name(kernel));
}

}  // namespace meshloom::kernels::cuda
