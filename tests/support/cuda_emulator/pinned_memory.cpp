// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/pinned_memory.h"

#include <cstdlib>
#include <cstring>

namespace meshloom::emulator {
namespace {

// The driver gives whole pages too.
constexpr std::size_t kAlignment = 4096;

}  // namespace

std::byte* PinnedMemory::allocate(std::size_t bytes) {
  const std::size_t taken = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* const data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, taken));
  if (data == nullptr) return nullptr;
  std::memset(data, 0xff, taken);
  live_[data] = bytes;
  return data;
}

bool PinnedMemory::release(std::byte* data) {
  if (live_.erase(data) == 0) return false;
  std::free(data);
  return true;
}

bool PinnedMemory::contains(const void* data, std::size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(data);
  const auto after = live_.upper_bound(begin);
  if (after == live_.begin()) return false;
  const auto& [first, size] = *std::prev(after);
  return begin + bytes <= first + size;
}

// FNV-1a by words, so that every byte counts in its place.
std::uint64_t digest(const void* data, std::size_t bytes) {
  constexpr std::uint64_t kPrime = 0x100000001b3;
  const auto* at = static_cast<const std::byte*>(data);
  std::uint64_t digest = 0xcbf29ce484222325;
  for (std::size_t left = bytes; left > 0;) {
    std::uint64_t word = 0;
    const std::size_t taken = left < sizeof word ? left : sizeof word;
    std::memcpy(&word, at, taken);
    digest = (digest ^ word) * kPrime;
    digest ^= digest >> 29;
    at += taken;
    left -= taken;
  }
  return digest;
}

}  // namespace meshloom::emulator
