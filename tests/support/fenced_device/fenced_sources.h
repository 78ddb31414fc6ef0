// SPDX-License-Identifier: Apache-2.0
// Where allocators get memory of a fenced device, and host memory that it copies to and from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "kernels/base/segment_source.h"
#include "tests/support/fenced_device/byte_range.h"
#include "tests/support/fenced_device/fenced_memory.h"
#include "tests/support/fenced_device/fenced_streams.h"

namespace meshloom::testing {

/// The host memory of kind kHost that a device gave out.
class PinnedRanges {
 public:
  /// Replaces one that begins there.
  void add(const ByteRange& range) { ends_[range.begin] = range.end; }
  void remove(const std::byte* data) { ends_.erase(reinterpret_cast<std::uintptr_t>(data)); }
  /// Whether one of them holds the whole range.
  bool hold(const ByteRange& range) const;
  std::size_t bytes() const;

 private:
  std::map<std::uintptr_t, std::uintptr_t> ends_;  ///< by begin
};

/// Segments of the device's memory, which cannot grow. Each release first runs all work of the
/// device.
std::unique_ptr<SegmentSource> make_fenced_source(FencedMemory& memory, FencedStreams& streams);

/// Segments of the CPU's backend, which `ranges` learns of. Each release first runs all work of the
/// device.
std::unique_ptr<SegmentSource> make_pinned_source(PinnedRanges& ranges, FencedStreams& streams,
                                                  Threads threads);

}  // namespace meshloom::testing
