// SPDX-License-Identifier: Apache-2.0
// What every .cu file includes: CUDA's device side under nvcc, and an emulated one under g++
// (tests/support/cuda_emulator has it), with the same names for launches and shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

/// Declares shared memory of a block: the name, then the type, `MESHLOOM_SHARED(tile,
/// float[32][33])`.
#define MESHLOOM_SHARED(name, ...) __shared__ ::std::type_identity_t<__VA_ARGS__> name
/// Declares a pointer to the shared memory whose bytes the launch gives, aligned to 16.
#define MESHLOOM_DYNAMIC_SHARED(name, T)                                   \
  extern __shared__ __align__(16) unsigned char meshloom_dynamic_shared[]; \
  T* name = reinterpret_cast<T*>(meshloom_dynamic_shared)
#else
#include <meshloom_emulated_device.h>
#endif

namespace meshloom::kernels::cuda {

/// Throws what a launch that failed says (runtime/check.cpp); `kernel` is its name as the compiler
/// spells it.
void check_launch(cudaError_t error, const char* kernel);

#ifdef __CUDACC__
/// The same for a kernel whose name CUDA's runtime knows (runtime/kernel_names.cpp).
void check_kernel(cudaError_t error, const void* kernel);

/// Queues a kernel with `shared` bytes of dynamic shared memory; above 48 KiB the kernel asks for
/// them first. Arguments are copied, plain data.
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared,
            cudaStream_t stream, Args&&... args) {
  if (shared > 48 * 1024)
    check_launch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(shared)),
                 __PRETTY_FUNCTION__);
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  check_kernel(
      cudaLaunchKernelEx(&config, kernel, static_cast<Params>(std::forward<Args>(args))...),
      reinterpret_cast<const void*>(kernel));
}
#endif

}  // namespace meshloom::kernels::cuda
