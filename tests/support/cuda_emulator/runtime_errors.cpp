// SPDX-License-Identifier: Apache-2.0
// Errors of CUDA's runtime.
#include <fmt/format.h>

#include <utility>

#include "tests/support/cuda_emulator/architecture.h"
#include "tests/support/cuda_emulator/runtime_call.h"

namespace meshloom::emulator {
namespace {

struct ThreadState {
  int device = 0;
  cudaError_t error = cudaSuccess;
  cudaError_t text_of = cudaSuccess;
  std::string text;
};

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

struct ErrorName {
  cudaError_t error;
  const char* name;
  const char* text;
};

#define MESHLOOM_ERROR(NAME, TEXT) \
  { NAME, #NAME, TEXT }
constexpr ErrorName kNames[] = {
    MESHLOOM_ERROR(cudaSuccess, "no error"),
    MESHLOOM_ERROR(cudaErrorInvalidValue, "invalid argument"),
    MESHLOOM_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    MESHLOOM_ERROR(cudaErrorInitializationError, "initialization error"),
    MESHLOOM_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    MESHLOOM_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    MESHLOOM_ERROR(cudaErrorInsufficientDriver,
                   "CUDA driver version is insufficient for CUDA runtime version"),
    MESHLOOM_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    MESHLOOM_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    MESHLOOM_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    MESHLOOM_ERROR(cudaErrorNotReady, "device not ready"),
    MESHLOOM_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    MESHLOOM_ERROR(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    MESHLOOM_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    MESHLOOM_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    MESHLOOM_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef MESHLOOM_ERROR

const ErrorName* find_name(cudaError_t error) {
  for (const ErrorName& known : kNames)
    if (known.error == error) return &known;
  return nullptr;
}

}  // namespace

cudaError_t remember(cudaError_t error, std::string text) {
  ThreadState& state = thread_state();
  state.error = state.text_of = error;
  state.text = std::move(text);
  return error;
}

EmulatedDevice& current_device() {
  if (architecture().devices == 0)
    throw FaultError(cudaErrorNoDevice, "no CUDA-capable device is detected");
  EmulatedDevice& device = machine().device(thread_state().device);
  if (device.fault) throw FaultError(device.fault->error, device.fault->text);
  return device;
}

CUstream_st& open_stream(cudaStream_t stream) {
  if (!machine().is_open(stream))
    throw FaultError(cudaErrorInvalidResourceHandle,
                     stream == nullptr ? "the null stream, where every call names its own"
                                       : "a stream that is not open");
  EmulatedDevice& device = *stream->device;
  if (device.fault) throw FaultError(device.fault->error, device.fault->text);
  return *stream;
}

}  // namespace meshloom::emulator

using namespace meshloom::emulator;

cudaError_t cudaSetDevice(int device) {
  return runtime_call([&] {
    if (architecture().devices == 0)
      throw FaultError(cudaErrorNoDevice, "no CUDA-capable device is detected");
    if (device < 0 || device >= architecture().devices)
      throw FaultError(cudaErrorInvalidDevice, fmt::format("there is no device {}, there are {}",
                                                           device, architecture().devices));
    thread_state().device = device;
  });
}

cudaError_t cudaGetDevice(int* device) {
  *device = thread_state().device;
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorName* const known = find_name(error);
  return known == nullptr ? "unrecognized error code" : known->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const ThreadState& state = thread_state();
  if (error != cudaSuccess && error == state.text_of) return state.text.c_str();
  const ErrorName* const known = find_name(error);
  return known == nullptr ? "unrecognized error code" : known->text;
}

cudaError_t cudaPeekAtLastError() { return thread_state().error; }

cudaError_t cudaGetLastError() { return std::exchange(thread_state().error, cudaSuccess); }
