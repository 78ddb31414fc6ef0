// SPDX-License-Identifier: Apache-2.0
// The launch of a kernel on the emulated device, and where it is queued.
#pragma once

#include <driver_types.h>
#include <vector_types.h>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace meshloom::emulator {

/// A kernel with its arguments. `invoke` calls it with a copy of the `argument_bytes` that lie at
/// `arguments`: the one memory of the host that the kernel may read.
struct Launch {
  const void* kernel = nullptr;
  dim3 grid;
  dim3 block;
  std::size_t shared = 0;
  const void* arguments = nullptr;
  std::size_t argument_bytes = 0;
  void (*invoke)(const void* arguments) = nullptr;
};

/// Queues a kernel. Refuses what is beyond the limits of the architecture, and more than 48 KiB of
/// dynamic shared memory that cudaFuncSetAttribute did not allow.
cudaError_t launch_kernel(const Launch& launch, cudaStream_t stream);
/// cudaFuncSetAttribute's cudaFuncAttributeMaxDynamicSharedMemorySize.
cudaError_t allow_dynamic_shared(const void* kernel, std::size_t bytes);

}  // namespace meshloom::emulator

namespace meshloom::kernels::cuda {

void check_launch(cudaError_t error, const char* kernel);

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared,
            cudaStream_t stream, Args&&... args) {
  static_assert((std::is_trivially_copyable_v<Params> && ...));
  const auto call = [kernel, ... values = static_cast<Params>(std::forward<Args>(args))] {
    kernel(values...);
  };
  using Call = std::remove_const_t<decltype(call)>;
  const auto* key = reinterpret_cast<const void*>(kernel);
  if (shared > 48 * 1024)
    check_launch(emulator::allow_dynamic_shared(key, shared), __PRETTY_FUNCTION__);
  check_launch(emulator::launch_kernel(
                   {key, grid, block, shared, &call, sizeof(Call),
                    [](const void* arguments) { (*static_cast<const Call*>(arguments))(); }},
                   stream),
               __PRETTY_FUNCTION__);
}

}  // namespace meshloom::kernels::cuda
