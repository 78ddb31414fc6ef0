// SPDX-License-Identifier: Apache-2.0
// What the device is, and its memory and time; the kernels are in the files of their topics.
#include "kernels/cpu/cpu_backend.h"

#include <unistd.h>

#include <chrono>

#include "kernels/backend_table.h"
#include "kernels/base/error.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/heap_source.h"
#include "kernels/cpu/matmul/library_threads.h"
#include "kernels/cpu/matmul/matmul_table.h"

namespace meshloom::kernels::cpu {
namespace {

/// All work before a mark is done when it is made.
class CpuEvent final : public Event {
 public:
  void record(const Stream&) override { mark_ = std::chrono::steady_clock::now(); }
  void wait() override {}
  bool done() override { return true; }
  double seconds_since(Event& start) override {
    return std::chrono::duration<double>(mark_ - static_cast<CpuEvent&>(start).mark_).count();
  }

 private:
  std::chrono::steady_clock::time_point mark_;
};

}  // namespace

CpuBackend::CpuBackend() {
  cpu_class();
  verify_blas();
}

ComputeDescription CpuBackend::describe() const {
  return {cpu_class_name(cpu_class()), cpu_class_name(hardware_cpu_class()),
          std::to_string(kMatmulTableVersion)};
}

DType CpuBackend::fast_dtype(std::int64_t channels) const {
  return cpu::fast_dtype(cpu_class(), channels);
}

std::unique_ptr<SegmentSource> CpuBackend::make_source(MemoryKind kind, Threads threads) {
  if (kind == MemoryKind::kSymmetric)
    throw Unimplemented("cpu: peers make symmetric memory together; a backend has none");
  return make_heap_source(threads);
}

DeviceMemory CpuBackend::memory() const {
  const auto bytes = [](int pages) {
    return static_cast<std::int64_t>(sysconf(pages)) * sysconf(_SC_PAGESIZE);
  };
  return {bytes(_SC_AVPHYS_PAGES), bytes(_SC_PHYS_PAGES)};
}

std::shared_ptr<OwnedStream> CpuBackend::make_stream(Device) {
  return std::make_shared<OwnedStream>(Stream{});
}

std::unique_ptr<Event> CpuBackend::make_event() { return std::make_unique<CpuEvent>(); }

CpuBackend& cpu_backend() {
  static CpuBackend backend;
  return backend;
}

void add_cpu_device() {
  add_device(kCpuDevice, []() -> Backend& { return cpu_backend(); });
}

}  // namespace meshloom::kernels::cpu
