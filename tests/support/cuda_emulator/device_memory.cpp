// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/device_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "tests/support/fenced_device/fence_guard.h"

namespace meshloom::emulator {
namespace {

constexpr std::size_t kTotal = std::size_t{8} << 30;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
static_assert(kHugePage % Shadow::kChunkBytes == 0);

std::size_t round_up_to(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

DeviceMemory::DeviceMemory(int index) : index_(index), total_(kTotal), shadow_(kReserved) {
  void* const data = ::mmap(nullptr, kReserved + kHugePage, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  begin_ = round_up_to(reinterpret_cast<std::uintptr_t>(data), kHugePage);
  testing::guard_fenced_range(index, reinterpret_cast<const std::byte*>(begin_), kReserved);
}

std::size_t DeviceMemory::find_gap(std::size_t bytes) const {
  if (bytes <= kReserved - next_) return next_;
  std::size_t begin = 0;
  for (const auto& [offset, allocation] : live_) {
    if (offset - begin >= bytes) return begin;
    begin = offset + allocation.taken;
  }
  return bytes <= kReserved - begin ? begin : kReserved;
}

std::byte* DeviceMemory::allocate(std::size_t bytes, Position position) {
  // At least a granule lies between two allocations.
  const std::size_t taken = round_up_to(bytes + Shadow::kGranule, Shadow::kChunkBytes);
  if (bytes > free()) return nullptr;
  const std::size_t offset = find_gap(taken);
  if (offset == kReserved) return nullptr;
  auto* const data = reinterpret_cast<std::byte*>(begin_ + offset);
  // Opening and closing the memory costs by page. A system that refuses has small ones.
  ::madvise(data, taken, MADV_HUGEPAGE);
  next_ = std::max(next_, offset + taken);
  used_ += bytes;
  live_[offset] = {bytes, taken};
  shadow_.set_live(offset, bytes, true);
  shadow_.set_birth(offset, bytes, position);
  return data;
}

bool DeviceMemory::release(std::byte* data) {
  const auto found = live_.find(offset(data));
  if (found == live_.end()) return false;
  const auto [begin, allocation] = *found;
  used_ -= allocation.bytes;
  shadow_.drop(begin, allocation.taken);
  ::madvise(data, allocation.taken, MADV_DONTNEED);
  ::mprotect(data, allocation.taken, PROT_NONE);
  live_.erase(found);
  return true;
}

void DeviceMemory::poison(const std::byte* data, std::size_t bytes, Position position) {
  change(data, bytes, position, false);
}

void DeviceMemory::unpoison(const std::byte* data, std::size_t bytes, Position position) {
  change(data, bytes, position, true);
}

void DeviceMemory::change(const std::byte* data, std::size_t bytes, Position position, bool live) {
  if (bytes > 0) changes_.push_back({position, offset(data), bytes, live, {}, {}});
}

void DeviceMemory::apply(Change& change) {
  change.old_runs.clear();
  bool live = true;
  for (std::size_t done = 0; done < change.bytes; done += change.old_runs.back(), live = !live)
    change.old_runs.push_back(shadow_.same_bytes(change.offset + done, change.bytes - done, live));
  shadow_.set_live(change.offset, change.bytes, change.live);
  change.old_births.clear();
  if (!change.live) return;
  for (std::size_t at = change.offset; at < change.offset + change.bytes; at += Shadow::kGranule)
    change.old_births.push_back(shadow_.birth(at));
  shadow_.set_birth(change.offset, change.bytes, change.position);
}

void DeviceMemory::undo(Change& change) {
  std::size_t at = change.offset;
  bool live = true;
  for (const std::size_t run : change.old_runs) {
    shadow_.set_live(at, run, live);
    at += run;
    live = !live;
  }
  for (std::size_t i = 0; i < change.old_births.size(); ++i)
    shadow_.set_birth(change.offset + i * Shadow::kGranule, 1, change.old_births[i]);
}

void DeviceMemory::go_to(Position position) {
  while (applied_ < changes_.size() && changes_[applied_].position < position)
    apply(changes_[applied_++]);
  while (applied_ > 0 && changes_[applied_ - 1].position > position) undo(changes_[--applied_]);
}

void DeviceMemory::forget_before(Position position) {
  while (!changes_.empty() && changes_.front().position < position) {
    if (applied_ == 0)
      apply(changes_.front());
    else
      --applied_;
    changes_.pop_front();
  }
}

// Memory that stays open would find nothing.
void DeviceMemory::protect(bool open) const {
  const int protection = open ? PROT_READ | PROT_WRITE : PROT_NONE;
  for (auto allocation = live_.begin(); allocation != live_.end();) {
    // Neighbours change together.
    const std::size_t begin = allocation->first;
    std::size_t end = begin;
    for (; allocation != live_.end() && allocation->first == end; ++allocation)
      end += allocation->second.taken;
    if (::mprotect(reinterpret_cast<void*>(begin_ + begin), end - begin, protection) != 0)
      std::abort();
  }
}

std::string DeviceMemory::describe(const void* address) const {
  const std::size_t at = offset(address);
  const auto after = live_.upper_bound(at);
  if (after == live_.begin()) return fmt::format("an address of cuda:{} never allocated", index_);
  const auto& [begin, allocation] = *std::prev(after);
  if (at >= begin + allocation.taken) return fmt::format("freed memory of cuda:{}", index_);
  return fmt::format("byte {} of an allocation of {} bytes on cuda:{}", at - begin,
                     allocation.bytes, index_);
}

}  // namespace meshloom::emulator
