// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/streams.h"

#include <cstdint>
#include <utility>

#include "kernels/cuda/runtime/call_log.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/current_device.h"
#include "kernels/cuda/runtime/pinned_ring.h"

namespace meshloom::kernels::cuda {
namespace {

/// What Stream::handle points to.
struct StreamHandle {
  int device = 0;
  cudaStream_t stream = nullptr;
  std::unique_ptr<PinnedRing> ring;
};

StreamHandle& handle_of(const Stream& stream) {
  check_internal(stream.handle != nullptr, "cuda: a call without a stream");
  return *static_cast<StreamHandle*>(stream.handle);
}

class DeviceStream final : public OwnedStream {
 public:
  explicit DeviceStream(std::unique_ptr<StreamHandle> handle)
      : OwnedStream(Stream{handle.get()}), handle_(std::move(handle)) {}

  ~DeviceStream() override {
    log_failure([&] {
      wait_for(get(), "the last work of a stream");
      handle_->ring.reset();
      check(cudaStreamDestroy(handle_->stream), "end of a stream");
    });
  }

 private:
  std::unique_ptr<StreamHandle> handle_;
};

class DeviceEvent final : public Event {
 public:
  explicit DeviceEvent(int device) : device_(device) {
    use_device(device);
    check(cudaEventCreateWithFlags(&event_, cudaEventDefault), "a new event");
  }

  ~DeviceEvent() override {
    log_failure([&] { check(cudaEventDestroy(event_), "end of an event"); });
  }

  void record(const Stream& stream) override {
    check(cudaEventRecord(event_, use_stream(stream)), "record of an event");
    recorded_ = true;
    log_ = &call_log();
    calls_ = log_->given();
  }

  void wait() override {
    if (!recorded_) return;
    use_device(device_);
    check(cudaEventSynchronize(event_), "wait for an event");
    // The logs of other threads know what those gave.
    if (log_ == &call_log()) call_log().drop_until(calls_);
  }

  bool done() override {
    if (!recorded_) return true;
    use_device(device_);
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaErrorNotReady) return false;
    check(error, "query of an event");
    return true;
  }

  double seconds_since(Event& start) override {
    wait();
    start.wait();
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, static_cast<DeviceEvent&>(start).event_, event_),
          "time between events");
    return milliseconds * 1e-3;
  }

  void order(const Stream& stream) {
    if (recorded_)
      check(cudaStreamWaitEvent(use_stream(stream), event_, 0), "wait of a stream for an event");
  }

 private:
  int device_;
  cudaEvent_t event_ = nullptr;
  bool recorded_ = false;
  const CallLog* log_ = nullptr;  ///< of the thread that recorded it
  std::uint64_t calls_ = 0;
};

}  // namespace

std::shared_ptr<OwnedStream> make_device_stream(int index) {
  use_device(index);
  auto handle = std::make_unique<StreamHandle>();
  handle->device = index;
  check(cudaStreamCreateWithFlags(&handle->stream, cudaStreamNonBlocking), "a new stream");
  handle->ring = std::make_unique<PinnedRing>(handle->stream);
  return std::make_shared<DeviceStream>(std::move(handle));
}

cudaStream_t use_stream(const Stream& stream) {
  const StreamHandle& handle = handle_of(stream);
  use_device(handle.device);
  return handle.stream;
}

void wait_for(const Stream& stream, const char* what) {
  const std::uint64_t given = call_log().given();
  check(cudaStreamSynchronize(use_stream(stream)), what);
  call_log().drop_until(given);
}

PinnedRing& ring_of(const Stream& stream) { return *handle_of(stream).ring; }

std::unique_ptr<Event> make_device_event(int index) { return std::make_unique<DeviceEvent>(index); }

void order_behind_event(const Stream& stream, Event& event) {
  static_cast<DeviceEvent&>(event).order(stream);
}

}  // namespace meshloom::kernels::cuda
