// SPDX-License-Identifier: Apache-2.0
// ByteRing: a one-way stream of bytes between two ranks through memory that both can see.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace meshloom::comm {

/// It has one writer, one reader, no locks. Lives in zeroed memory that is shared between threads,
/// or between processes by a mapping; it holds no pointers. Positions only grow; their difference
/// is what is in the ring.
class ByteRing {
 public:
  static constexpr std::size_t kCapacity = 256 * 1024;

  /// Writes as much as fits and returns how much that was.
  std::size_t write(const std::byte* data, std::size_t bytes) {
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    const std::uint64_t head = head_.load(std::memory_order_acquire);
    const std::size_t n =
        std::min<std::size_t>(bytes, kCapacity - static_cast<std::size_t>(tail - head));
    if (n == 0) return 0;
    const std::size_t at = tail % kCapacity;
    const std::size_t first = std::min(n, kCapacity - at);
    std::memcpy(bytes_ + at, data, first);
    std::memcpy(bytes_, data + first, n - first);
    tail_.store(tail + n, std::memory_order_release);
    return n;
  }

  /// Reads up to `bytes` and returns how much that was.
  std::size_t read(std::byte* data, std::size_t bytes) {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    const std::uint64_t tail = tail_.load(std::memory_order_acquire);
    const std::size_t n = std::min<std::size_t>(bytes, static_cast<std::size_t>(tail - head));
    if (n == 0) return 0;
    const std::size_t at = head % kCapacity;
    const std::size_t first = std::min(n, kCapacity - at);
    std::memcpy(data, bytes_ + at, first);
    std::memcpy(data + first, bytes_, n - first);
    head_.store(head + n, std::memory_order_release);
    return n;
  }

  /// Forgets what is in the ring, for the reader, while the writer does not write.
  void discard() { head_.store(tail_.load(std::memory_order_acquire), std::memory_order_release); }

  std::size_t available() const {
    return static_cast<std::size_t>(tail_.load(std::memory_order_acquire) -
                                    head_.load(std::memory_order_relaxed));
  }

 private:
  alignas(64) std::atomic<std::uint64_t> head_{0};
  alignas(64) std::atomic<std::uint64_t> tail_{0};
  alignas(64) std::byte bytes_[kCapacity];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// RingField has one ring for every ordered pair of ranks, in memory that all of them share.
struct RingField {
  ByteRing* rings = nullptr;
  int world_size = 0;

  ByteRing& ring(int from, int to) const { return rings[from * world_size + to]; }
};

}  // namespace meshloom::comm
