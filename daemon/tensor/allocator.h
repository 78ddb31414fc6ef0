// SPDX-License-Identifier: Apache-2.0
// A caching allocator over a source of segments: after the first step, steps allocate from it
// alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "daemon/tensor/storage.h"
#include "kernels/base/segment_source.h"

namespace meshloom {

struct AllocatorStats {
  std::size_t bytes_in_use = 0;
  std::size_t peak_bytes_in_use = 0;
  std::size_t segment_bytes = 0;        ///< taken from the source
  std::uint64_t segments_acquired = 0;  ///< system allocations since the start
};

/// Allocator takes the best fit over free blocks, split and coalesced. Not thread-safe by itself
/// except for `free`, which the last owner of a Storage may call from any thread; allocation is the
/// rank's training thread's.
class Allocator : public std::enable_shared_from_this<Allocator> {
 public:
  static std::shared_ptr<Allocator> create(std::unique_ptr<SegmentSource> source);
  virtual ~Allocator() = default;

  /// Returns a block of at least `bytes`, aligned to 64. Zero bytes give a valid, empty storage.
  virtual std::shared_ptr<Storage> allocate(std::size_t bytes) = 0;
  virtual AllocatorStats stats() const = 0;
  virtual void reset_peak() = 0;
  /// Gives whole free segments back to the source: between jobs.
  virtual void trim() = 0;
  virtual Device device() const = 0;

 protected:
  friend class Storage;
  virtual void free(Storage& storage) = 0;
};

}  // namespace meshloom
