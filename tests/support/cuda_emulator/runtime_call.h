// SPDX-License-Identifier: Apache-2.0
// What the functions of CUDA's runtime have in common here: the lock, the thread's device, and
// errors.
#pragma once

#include <cuda_runtime_api.h>

#include <exception>
#include <mutex>
#include <string>

#include "tests/support/cuda_emulator/fault.h"
#include "tests/support/cuda_emulator/machine.h"

namespace meshloom::emulator {

/// The thread's last error; `text` is what cudaGetErrorString says of it.
cudaError_t remember(cudaError_t error, std::string text);

/// The device of the calling thread. Throws FaultError where there is none, or where it has met a
/// fault.
EmulatedDevice& current_device();
/// A stream that is open and not of a device with a fault. Throws FaultError.
CUstream_st& open_stream(cudaStream_t stream);

/// Runs a function of the runtime under the lock, and makes an error of what it throws.
template <class Body>
cudaError_t runtime_call(Body&& body) {
  const std::lock_guard lock(machine().mutex);
  try {
    body();
    return cudaSuccess;
  } catch (const FaultError& error) {
    return remember(error.error(), error.what());
  } catch (const std::exception& error) {
    return remember(cudaErrorUnknown, error.what());
  }
}

}  // namespace meshloom::emulator
