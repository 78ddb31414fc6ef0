// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/heap_source.h"

#include <sys/mman.h>
#include <unistd.h>

#include <map>

#include "kernels/base/error.h"

namespace meshloom::kernels::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Makes the kernel give the pages now, so that no step pays for a page fault. Clearing pages is
// bound by one core's speed, so all threads share it. `bytes` is whole huge pages.
void touch(Threads threads, std::byte* data, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto huge_pages = static_cast<std::int64_t>(bytes / kHugePage);
  parallel_for(threads, huge_pages, 2, [&](std::int64_t begin, std::int64_t end) {
    std::byte* from = data + static_cast<std::size_t>(begin) * kHugePage;
    const std::size_t size = static_cast<std::size_t>(end - begin) * kHugePage;
#ifdef MADV_POPULATE_WRITE
    if (madvise(from, size, MADV_POPULATE_WRITE) == 0) return;
#endif
    for (std::size_t at = 0; at < size; at += page)
      *static_cast<volatile std::byte*>(from + at) = std::byte{0};
  });
}

[[noreturn]] void refuse(std::size_t bytes) {
  throw ResourceExhausted(
      fmt::format("allocator: the system refused {} more bytes of memory", bytes), "OUT_OF_MEMORY",
      {{"bytes", std::to_string(bytes)}});
}

std::byte* reserve(std::size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

/// A segment is the start of a reservation of addresses; what is in use of it is readable and
/// writable.
class HeapSource final : public SegmentSource {
 public:
  explicit HeapSource(Threads threads) : threads_(threads) {}

  Device device() const override { return kCpuDevice; }
  std::size_t granularity() const override { return kHugePage; }

  std::byte* acquire(std::size_t bytes) override {
    // What a segment may grow to: more than there is memory.
    const auto pages = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES));
    const std::size_t growth =
        pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) / kHugePage * kHugePage;
    // mmap aligns to small pages only: one huge page more leaves room to align.
    Reservation r{nullptr, bytes + kHugePage + growth};
    r.data = reserve(r.bytes);
    if (!r.data) {
      r.bytes = bytes + kHugePage;
      r.data = reserve(r.bytes);
    }
    if (!r.data) refuse(bytes);
    const auto address = reinterpret_cast<std::uintptr_t>(r.data);
    std::byte* data = r.data + (kHugePage - address % kHugePage) % kHugePage;
    if (!commit(data, bytes)) {
      munmap(r.data, r.bytes);
      refuse(bytes);
    }
    reservations_.emplace(data, r);
    return data;
  }

  bool extend(std::byte* data, std::size_t bytes, std::size_t more) override {
    const Reservation& r = reservations_.at(data);
    const auto room = static_cast<std::size_t>(r.data + r.bytes - (data + bytes));
    if (more > room) return false;
    if (!commit(data + bytes, more)) refuse(more);
    return true;
  }

  void release(std::byte* data, std::size_t) override {
    const auto found = reservations_.find(data);
    munmap(found->second.data, found->second.bytes);
    reservations_.erase(found);
  }

 private:
  struct Reservation {
    std::byte* data;
    std::size_t bytes;
  };

  bool commit(std::byte* data, std::size_t bytes) const {
    if (mprotect(data, bytes, PROT_READ | PROT_WRITE) != 0) return false;
    madvise(data, bytes, MADV_HUGEPAGE);
    touch(threads_, data, bytes);
    return true;
  }

  Threads threads_;
  std::map<std::byte*, Reservation> reservations_;
};

}  // namespace

std::unique_ptr<SegmentSource> make_heap_source(Threads threads) {
  return std::make_unique<HeapSource>(threads);
}

}  // namespace meshloom::kernels::cpu
