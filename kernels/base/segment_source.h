// SPDX-License-Identifier: Apache-2.0
// SegmentSource: where allocators get their memory, by kind.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/device.h"

namespace meshloom {

/// The kind says what memory is for.
enum class MemoryKind : std::uint8_t {
  kDevice,
  /// Memory of the device that peers can map as well, for what they exchange.
  kSymmetric,
  /// Memory of the host that the device copies to and from while the host goes on. No tensor's.
  kHost,
};

/// A device's memory comes from its backend (Backend::make_source), memory that peers map from
/// those who make it together.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  virtual Device device() const = 0;
  /// Returns at least `bytes` (a multiple of `granularity()`), aligned to 2 MiB if at least that
  /// large, touched. Throws ResourceExhausted naming the size.
  virtual std::byte* acquire(std::size_t bytes) = 0;
  /// Makes the segment at `data`, now of `bytes`, longer by `more` (a multiple of granularity()) at
  /// its end, touched. False if this source or this segment cannot grow: then acquire another
  /// one. Throws ResourceExhausted if there is no memory.
  virtual bool extend(std::byte* data, std::size_t bytes, std::size_t more) = 0;
  /// Takes back a whole segment, once all work that the device was given is done; `bytes` includes
  /// what it grew by.
  virtual void release(std::byte* data, std::size_t bytes) = 0;
  virtual std::size_t granularity() const = 0;

  // A test's device, which finds wrong uses of memory inside segments, has to know their blocks.
  /// Returns the bytes that an allocator leaves unused behind each block, which begins at a
  /// multiple of them: 0, or a power of two. With 0 nobody watches, and the two calls below need
  /// not be made.
  virtual std::size_t guard_bytes() const { return 0; }
  /// Nobody owns these bytes from now on. The host calls it while the device may still work on what
  /// it was given before. A new segment is unused.
  virtual void unused(std::byte*, std::size_t) {}
  /// These bytes have an owner from now on, who writes them before he reads them.
  virtual void used(std::byte*, std::size_t) {}
};

}  // namespace meshloom
