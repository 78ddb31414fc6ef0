// SPDX-License-Identifier: Apache-2.0
// CUDA's device side under g++, on the emulated device: what kernels/cuda/device.h includes where
// there is no nvcc. Kernels are compiled with -fsanitize=thread, so that the emulator sees every
// load and store of them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

#undef __forceinline__
#undef __launch_bounds__
#undef __noinline__
#undef __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __noinline__ __attribute__((noinline))
#define __grid_constant__

#include "tests/support/cuda_emulator/device/emulated_atomics.h"
#include "tests/support/cuda_emulator/device/emulated_block.h"
#include "tests/support/cuda_emulator/device/emulated_launch.h"
#include "tests/support/cuda_emulator/device/emulated_math.h"
#include "tests/support/cuda_emulator/device/emulated_tensor_core.h"
#include "tests/support/cuda_emulator/device/emulated_thread.h"
#include "tests/support/cuda_emulator/device/emulated_warp.h"

// Behind all headers of CUDA, whose parameters have these names.
#define threadIdx (::meshloom::emulator::this_thread()->thread_index)
#define blockIdx (::meshloom::emulator::this_thread()->block_index)
#define blockDim (::meshloom::emulator::this_thread()->block_size)
#define gridDim (::meshloom::emulator::this_thread()->grid_size)
