// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fenced_device/fenced_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>

#include "kernels/base/error.h"
#include "kernels/base/integer_math.h"
#include "tests/support/fenced_device/fence_guard.h"

namespace meshloom::testing {
namespace {

// More than any test needs: addresses cost nothing.
constexpr std::size_t kReserved = std::size_t{64} << 30;

}  // namespace

FencedMemory::FencedMemory(Device device) : device_(device) {
  const std::size_t bytes = kReserved + kGranularity;
  void* const data =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED)
    throw ResourceExhausted(fmt::format(
        "fenced device {}: the system refused {} bytes of addresses", to_string(device), bytes));
  // mmap aligns to small pages only.
  const std::size_t past = reinterpret_cast<std::uintptr_t>(data) % kGranularity;
  base_ = static_cast<std::byte*>(data) + (kGranularity - past) % kGranularity;
  guard_fenced_range(device.index, base_, kReserved);
}

std::byte* FencedMemory::acquire(std::size_t bytes) {
  const std::size_t taken = round_up(bytes, kGranularity);
  if (static_cast<std::int64_t>(taken) > size().free || taken > kReserved - next_)
    throw ResourceExhausted(
        fmt::format("fenced device {}: {} more bytes are asked for where {} of {} are free",
                    to_string(device_), bytes, size().free, total_),
        "OUT_OF_MEMORY", {{"bytes", std::to_string(bytes)}});
  std::byte* const data = base_ + next_;
  // Opening and closing the fence costs by page. A system that refuses has small ones.
  ::madvise(data, taken, MADV_HUGEPAGE);
  live_.emplace(next_, next_ + taken);
  next_ += taken;
  highest_ = std::max(highest_, next_);
  live_bytes_ += static_cast<std::int64_t>(taken);
  return data;
}

void FencedMemory::release(std::byte* data) {
  const auto found = live_.find(static_cast<std::size_t>(data - base_));
  check_internal(found != live_.end(), "fenced device {}: a segment is released that is not there",
                 to_string(device_));
  const std::size_t bytes = found->second - found->first;
  ::madvise(data, bytes, MADV_DONTNEED);
  live_bytes_ -= static_cast<std::int64_t>(bytes);
  live_.erase(found);
  if (live_.empty()) next_ = 0;
}

void FencedMemory::open() const {
  check_internal(protect(PROT_READ | PROT_WRITE),
                 "fenced device {}: the system refused to open its memory", to_string(device_));
}

// Memory that stays open would find nothing.
void FencedMemory::close() const noexcept {
  if (!protect(PROT_NONE)) std::abort();
}

bool FencedMemory::protect(int protection) const noexcept {
  for (auto segment = live_.begin(); segment != live_.end();) {
    // Neighbours change together.
    const std::size_t begin = segment->first;
    std::size_t end = begin;
    for (; segment != live_.end() && segment->first == end; ++segment) end = segment->second;
    if (::mprotect(base_ + begin, end - begin, protection) != 0) return false;
  }
  return true;
}

const char* FencedMemory::fault_of(const ByteRange& range) const {
  const auto base = reinterpret_cast<std::uintptr_t>(base_);
  if (range.begin < base || range.begin >= base + highest_)
    return "shows memory that is not the device's";
  const auto after = live_.upper_bound(range.begin - base);
  if (after == live_.begin() || std::prev(after)->second <= range.begin - base)
    return "shows memory that was released";
  if (std::prev(after)->second < range.end - base)
    return "reaches beyond the memory of its segment";
  return nullptr;
}

}  // namespace meshloom::testing
