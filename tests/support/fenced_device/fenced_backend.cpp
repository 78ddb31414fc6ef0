// SPDX-License-Identifier: Apache-2.0
// What is no compute call: descriptions, sources, streams, and the checks of every call.
#include "tests/support/fenced_device/fenced_backend.h"

#include <utility>

#include "kernels/base/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/fenced_device/fence_guard.h"
#include "tests/support/fenced_device/fenced_event.h"

namespace meshloom::testing {

FencedBackend::FencedBackend(Device device, std::uint64_t seed)
    : device_(device), memory_(device), streams_(memory_, seed) {}

kernels::ComputeDescription FencedBackend::describe() const {
  kernels::ComputeDescription description = kernels::cpu::cpu_backend().describe();
  description.compute_class =
      compute_class_.empty() ? "fenced_" + description.compute_class : compute_class_;
  description.hardware_class.insert(0, "fenced_");
  return description;
}

DType FencedBackend::fast_dtype(std::int64_t channels) const {
  return kernels::cpu::cpu_backend().fast_dtype(channels);
}

kernels::OutputLossPlan FencedBackend::output_loss_plan(const TensorView& hidden,
                                                        const TensorView& weight,
                                                        std::int64_t widest) const {
  return kernels::cpu::cpu_backend().output_loss_plan(hidden, weight, widest);
}

std::unique_ptr<SegmentSource> FencedBackend::make_source(MemoryKind kind, Threads threads) {
  if (kind == MemoryKind::kHost) return make_pinned_source(pinned_, streams_, threads);
  return make_fenced_source(memory_, streams_);
}

std::shared_ptr<OwnedStream> FencedBackend::make_stream(Device device) {
  check_internal(device == device_, "fenced device {}: a stream is asked for on {}",
                 to_string(device_), to_string(device));
  return std::make_shared<FencedOwnedStream>(streams_);
}

std::unique_ptr<Event> FencedBackend::make_event() {
  return std::make_unique<FencedEvent>(streams_);
}

void FencedBackend::wait_event(const Stream& stream, Event& event) {
  const std::optional<StreamMark>& mark = fenced_event(event, streams_).mark();
  if (mark) streams_.wait_mark(stream, *mark);
}

void FencedBackend::submit(const kernels::KernelContext& context, const char* call,
                           const std::vector<Access>& accesses, FencedStreams::Work work) {
  streams_.push(context, call, uses_of(call, accesses), std::move(work));
}

std::vector<MemoryUse> FencedBackend::uses_of(const char* call,
                                              const std::vector<Access>& accesses) const {
  std::vector<MemoryUse> uses;
  uses.reserve(accesses.size());
  for (const Access& access : accesses) {
    if (!access.view->defined() || access.view->numel() == 0) continue;
    const ByteRange range = range_of(*access.view);
    const std::string fault = fault_of(access, range);
    check_internal(fault.empty(), "fenced device {}: {}: {} {}", to_string(device_), call,
                   access.name, fault);
    uses.push_back({range, access.name, access.writes});
  }
  return uses;
}

std::string FencedBackend::fault_of(const Access& access, const ByteRange& range) const {
  const Device device = access.view->device;
  if (access.on_host) {
    if (device != kCpuDevice) return "is of device " + to_string(device) + ", not of the host";
    const int index = fenced_device_at(access.view->data);
    if (index < 0) return "";
    return fmt::format("says host memory and shows that of cuda:{}", index);
  }
  if (device == kCpuDevice) return "is in host memory";
  if (device != device_) return "is of device " + to_string(device);
  const char* const fault = memory_.fault_of(range);
  return fault == nullptr ? "" : fault;
}

void FencedBackend::check_pinned(const char* call, const TensorView& host) const {
  if (host.numel() == 0) return;
  check_internal(pinned_.hold(range_of(host)),
                 "fenced device {}: {}: host is not memory of kind kHost of this device",
                 to_string(device_), call);
}

}  // namespace meshloom::testing
