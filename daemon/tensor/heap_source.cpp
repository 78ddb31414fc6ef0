// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/tensor/allocator.h"
#include "kernels/base/error.h"

namespace meshloom {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Makes the kernel give the pages now, so that no step pays for a page fault.
void touch(std::byte* data, std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return;
#endif
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < bytes; at += page)
    *static_cast<volatile std::byte*>(data + at) = std::byte{0};
}

class HeapSource final : public SegmentSource {
 public:
  Device device() const override { return kCpuDevice; }
  std::size_t granularity() const override { return kHugePage; }

  std::byte* acquire(std::size_t bytes) override {
    // mmap aligns to small pages only: take one huge page more and give back what sticks out.
    const std::size_t mapped = bytes + kHugePage;
    void* raw = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
      throw ResourceExhausted(
          fmt::format("allocator: the system refused {} more bytes of memory", bytes),
          "OUT_OF_MEMORY", {{"bytes", std::to_string(bytes)}});
    auto* begin = static_cast<std::byte*>(raw);
    const auto address = reinterpret_cast<std::uintptr_t>(raw);
    const std::size_t head = (kHugePage - address % kHugePage) % kHugePage;
    const std::size_t tail = mapped - head - bytes;
    if (head > 0) munmap(begin, head);
    if (tail > 0) munmap(begin + head + bytes, tail);
    std::byte* data = begin + head;
    madvise(data, bytes, MADV_HUGEPAGE);
    touch(data, bytes);
    return data;
  }

  void release(std::byte* data, std::size_t bytes) override { munmap(data, bytes); }
};

}  // namespace

std::unique_ptr<SegmentSource> make_heap_source() { return std::make_unique<HeapSource>(); }

}  // namespace meshloom
