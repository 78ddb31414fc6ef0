// SPDX-License-Identifier: Apache-2.0
// Streams and events of CUDA's runtime.
#include <fmt/format.h>

#include "tests/support/cuda_emulator/runtime_call.h"

using namespace meshloom::emulator;

namespace {

CUevent_st& made_event(cudaEvent_t event) {
  if (event == nullptr) throw FaultError(cudaErrorInvalidResourceHandle, "an event that is null");
  return *event;
}

/// The device of an event's mark, which has no fault.
EmulatedDevice& marked_device(const CUevent_st& event) {
  if (event.device->fault) throw FaultError(event.device->fault->error, event.device->fault->text);
  return *event.device;
}

void check_flags(unsigned flags, unsigned known) {
  if ((flags & ~known) != 0)
    throw FaultError(cudaErrorInvalidValue,
                     fmt::format("flags {:#x}, expected some of {:#x}", flags, known));
}

}  // namespace

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return runtime_call([&] {
    check_flags(flags, cudaStreamNonBlocking);
    *stream = machine().open_stream(current_device());
  });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return runtime_call([&] {
    if (!machine().is_open(stream)) open_stream(stream);
    machine().close_stream(stream);
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return runtime_call([&] { machine().finish(open_stream(stream)); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  cudaError_t state = cudaSuccess;
  const cudaError_t error = runtime_call([&] {
    CUstream_st& open = open_stream(stream);
    if (!open.items.empty()) machine().move_on(*open.device);
    if (open.items.empty())
      machine().host_knows(open.clock);
    else
      state = cudaErrorNotReady;
  });
  return error == cudaSuccess ? state : error;
}

cudaError_t cudaDeviceSynchronize() {
  return runtime_call([&] { machine().finish(current_device()); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return runtime_call([&] {
    check_flags(flags, 0);
    CUstream_st& open = open_stream(stream);
    if (made_event(event).mark) machine().await(open, event->mark);
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return runtime_call([&] {
    check_flags(flags, cudaEventBlockingSync | cudaEventDisableTiming);
    current_device();
    *event = new CUevent_st;
    (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return runtime_call([&] { delete &made_event(event); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return runtime_call([&] {
    CUstream_st& open = open_stream(stream);
    CUevent_st& made = made_event(event);
    made.mark = machine().mark(open);
    made.device = open.device;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return runtime_call([&] {
    const CUevent_st& made = made_event(event);
    if (made.mark) machine().finish(marked_device(made), *made.mark);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  cudaError_t state = cudaSuccess;
  const cudaError_t error = runtime_call([&] {
    const CUevent_st& made = made_event(event);
    if (!made.mark) return;
    EmulatedDevice& device = marked_device(made);
    if (!made.mark->come) machine().move_on(device);
    if (made.mark->come)
      machine().host_knows(made.mark->clock);
    else
      state = cudaErrorNotReady;
  });
  return error == cudaSuccess ? state : error;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  cudaError_t state = cudaSuccess;
  const cudaError_t error = runtime_call([&] {
    const CUevent_st &from = made_event(start), &to = made_event(end);
    if (!from.mark || !to.mark || !from.timed || !to.timed)
      throw FaultError(cudaErrorInvalidResourceHandle,
                       "the time between events that were not recorded, or take no time");
    if (!from.mark->come || !to.mark->come)
      state = cudaErrorNotReady;
    else
      *milliseconds = std::chrono::duration<float, std::milli>(to.mark->at - from.mark->at).count();
  });
  return error == cudaSuccess ? state : error;
}
