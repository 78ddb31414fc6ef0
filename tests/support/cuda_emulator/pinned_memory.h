// SPDX-License-Identifier: Apache-2.0
// PinnedMemory: memory of the host from cudaMallocHost, which copies use while the host goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace meshloom::emulator {

/// Used under the emulator's lock.
class PinnedMemory {
 public:
  /// nullptr: the system refuses. What it holds is 0xFF, which reads as NaN.
  std::byte* allocate(std::size_t bytes);
  /// False: no allocation begins there.
  bool release(std::byte* data);
  /// Whether all of a range lies in one allocation.
  bool contains(const void* data, std::size_t bytes) const;

 private:
  std::map<const std::byte*, std::size_t> live_;
};

/// A digest of memory, to see whether it changed.
std::uint64_t digest(const void* data, std::size_t bytes);

}  // namespace meshloom::emulator
