// SPDX-License-Identifier: Apache-2.0
// FencedMemory: the memory of one fenced device, which is closed but while the device works.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "kernels/base/device.h"
#include "kernels/options.h"
#include "tests/support/fenced_device/byte_range.h"

namespace meshloom::testing {

/// One reserved range of addresses, from which segments are taken in ascending order. Those of a
/// released segment are not handed out again while another segment lives, so that a view that
/// outlived its memory is found.
class FencedMemory {
 public:
  static constexpr std::size_t kGranularity = std::size_t{2} << 20;

  explicit FencedMemory(Device device);
  FencedMemory(const FencedMemory&) = delete;
  FencedMemory& operator=(const FencedMemory&) = delete;

  Device device() const { return device_; }

  /// A segment of at least `bytes`. Throws ResourceExhausted where the total would be passed.
  std::byte* acquire(std::size_t bytes);
  /// Gives the pages of a segment back. No work that touches them is left.
  void release(std::byte* data);

  /// Lets this process touch all segments.
  void open() const;
  void close() const noexcept;

  /// What is wrong with a view of this range, to stand behind its name; null if it lies in one
  /// segment.
  const char* fault_of(const ByteRange& range) const;

  void set_total(std::int64_t bytes) { total_ = bytes; }
  kernels::DeviceMemory size() const { return {total_ - live_bytes_, total_}; }

 private:
  /// False if the system refuses.
  bool protect(int protection) const noexcept;

  const Device device_;
  std::byte* base_ = nullptr;
  std::size_t next_ = 0;                     ///< offset of the next segment
  std::size_t highest_ = 0;                  ///< offset behind all segments there have been
  std::map<std::size_t, std::size_t> live_;  ///< begin and end of each segment, as offsets
  std::int64_t live_bytes_ = 0;
  std::int64_t total_ = std::int64_t{8} << 30;
};

/// Opens the memory of a device for as long as it lives.
class OpenFence {
 public:
  explicit OpenFence(const FencedMemory& memory) : memory_(memory) { memory_.open(); }
  ~OpenFence() { memory_.close(); }
  OpenFence(const OpenFence&) = delete;
  OpenFence& operator=(const OpenFence&) = delete;

 private:
  const FencedMemory& memory_;
};

}  // namespace meshloom::testing
