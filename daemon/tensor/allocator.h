// SPDX-License-Identifier: Apache-2.0
// A caching allocator over a source of segments: after the first step, steps allocate from it
// alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "daemon/tensor/storage.h"
#include "kernels/base/parallel_for.h"

namespace meshloom {

/// Where segments come from: heap here; host shared memory, CUDA and pinned memory are others.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  virtual Device device() const = 0;
  /// At least `bytes` (a multiple of `granularity()`), aligned to 2 MiB if at least that large,
  /// touched. Throws ResourceExhausted naming the size.
  virtual std::byte* acquire(std::size_t bytes) = 0;
  /// Makes the segment at `data`, now of `bytes`, longer by `more` (a multiple of granularity()) at
  /// its end, touched. False if this source or this segment cannot grow: then acquire another
  /// one. Throws ResourceExhausted if there is no memory.
  virtual bool extend(std::byte* data, std::size_t bytes, std::size_t more) = 0;
  /// Takes back a whole segment; `bytes` includes what it grew by.
  virtual void release(std::byte* data, std::size_t bytes) = 0;
  virtual std::size_t granularity() const = 0;
};

/// Anonymous memory with huge pages advised, touched once (by `threads`). Segments reserve address
/// space behind them and grow into it, so that usually there is one, without gaps, and best fit
/// wastes little.
std::unique_ptr<SegmentSource> make_heap_source(Threads threads = {});

struct AllocatorStats {
  std::size_t bytes_in_use = 0;
  std::size_t peak_bytes_in_use = 0;
  std::size_t segment_bytes = 0;        ///< taken from the source
  std::uint64_t segments_acquired = 0;  ///< system allocations since the start
};

/// Best fit over free blocks, split and coalesced. Not thread-safe by itself except for `free`,
/// which the last owner of a Storage may call from any thread; allocation is the rank's training
/// thread's.
class Allocator : public std::enable_shared_from_this<Allocator> {
 public:
  static std::shared_ptr<Allocator> create(std::unique_ptr<SegmentSource> source);
  virtual ~Allocator() = default;

  /// A block of at least `bytes`, aligned to 64. Zero bytes give a valid, empty storage.
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
