// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/check.h"

#include <string_view>

#include "kernels/base/device.h"
#include "kernels/base/dtype.h"
#include "kernels/cuda/runtime/call_log.h"

namespace meshloom::kernels::cuda {
namespace {

/// Whether work that was given earlier failed: then every later call of the process says so again.
bool is_late(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorUnknown: return true;
    default: return false;
  }
}

[[noreturn]] void throw_cuda_error(cudaError_t error, std::string_view what) {
  // One that belongs to a call alone must not come again as the next call's.
  cudaGetLastError();
  const Error::Metadata metadata = {{"cuda_error", cudaGetErrorName(error)}};
  const std::string text =
      fmt::format("{}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error));
  if (error == cudaErrorMemoryAllocation)
    throw ResourceExhausted("cuda: " + text, "OUT_OF_MEMORY", metadata);
  if (is_late(error))
    throw InternalError(fmt::format("cuda: the device failed, found by {}; calls since the last "
                                    "wait: {}",
                                    text, call_log().text()),
                        kDeviceFailed, metadata);
  throw InternalError("cuda: " + text, "CUDA_ERROR", metadata);
}

}  // namespace

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) [[unlikely]]
    throw_cuda_error(error, what);
}

void check_late(cudaStream_t stream, const char* what) {
  const cudaError_t error = cudaStreamQuery(stream);
  if (error != cudaErrorNotReady) return check(error, what);
  cudaGetLastError();  // the runtime keeps this as well
}

// Declared by device.h, which this file cannot include. `kernel` is a literal.
void check_launch(cudaError_t error, const char* kernel) {
  call_log().add(kernel);
  if (error != cudaSuccess) [[unlikely]]
    throw_cuda_error(error, "launch of " + readable_name(kernel));
}

void not_built(const std::string& what) { throw Unimplemented(what + " is not built yet on cuda"); }

// Declared by primitives/dtype_switch.h, which .cu files alone include.
[[noreturn]] void refuse_dtype(const char* what, DType dtype) {
  not_built(fmt::format("{} of {}", what, dtype_name(dtype)));
}

}  // namespace meshloom::kernels::cuda
