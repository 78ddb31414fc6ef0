// SPDX-License-Identifier: Apache-2.0
// Copies from device memory to shared memory that a thread begins and waits for later (sm_80 and
// newer). A thread sees its own copies behind wait_for_copies, the others of its block behind a
// barrier after that. Source: PTX ISA, cp.async.
#pragma once

#include "kernels/cuda/device.h"

namespace meshloom::kernels::cuda {

/// Begins a copy of 16 bytes; zeros are written where not `wanted`, and `from` is not read. Both
/// addresses are multiples of 16 bytes.
__device__ __forceinline__ void begin_copy(void* to, const void* from, bool wanted) {
#ifdef __CUDACC__
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from),
                 "r"(wanted ? 16 : 0)
               : "memory");
#else
  emulator::begin_copy(to, from, wanted);
#endif
}

/// Makes a group of the copies that the thread began since the last call.
__device__ __forceinline__ void end_copy_group() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulator::end_copy_group();
#endif
}

/// Waits until at most the last kGroups groups of the thread are still under way.
template <int kGroups>
__device__ __forceinline__ void wait_for_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
#else
  emulator::wait_for_copies(kGroups);
#endif
}

}  // namespace meshloom::kernels::cuda
