// SPDX-License-Identifier: Apache-2.0
// DeviceMemory: the memory of one emulated device, closed to the host but while the device runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "tests/support/cuda_emulator/shadow.h"

namespace meshloom::emulator {

/// Counts what the host asks of a device, in its order.
using Position = std::uint32_t;

/// Used under the emulator's lock.
class DeviceMemory {
 public:
  explicit DeviceMemory(int index);

  /// nullptr: there is no memory left. What it holds is undefined.
  std::byte* allocate(std::size_t bytes, Position position);
  /// False: no allocation begins there.
  bool release(std::byte* data);

  /// From this position on a range must not be touched. Work that was given before runs as before.
  void poison(const std::byte* data, std::size_t bytes, Position position);
  /// From this position on a range may be touched, and is undefined.
  void unpoison(const std::byte* data, std::size_t bytes, Position position);
  /// Makes the shadow what it is for work that was given at this position.
  void go_to(Position position);
  /// Work of positions before this one is all done.
  void forget_before(Position position);

  void open() const { protect(true); }
  void close() const { protect(false); }

  bool contains(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - begin_ < kReserved;
  }
  std::size_t offset(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - begin_;
  }
  Shadow& shadow() { return shadow_; }
  std::size_t total() const { return total_; }
  std::size_t free() const { return total_ - used_; }
  /// "byte 512 of an allocation of 512 bytes", or where else an address of this device lies.
  std::string describe(const void* address) const;

 private:
  struct Change;

  void change(const std::byte* data, std::size_t bytes, Position position, bool live);
  void apply(Change& change);
  void undo(Change& change);
  void protect(bool open) const;
  std::size_t find_gap(std::size_t bytes) const;

  static constexpr std::size_t kReserved = std::size_t{32} << 30;

  struct Change {
    Position position;
    std::size_t offset;
    std::size_t bytes;
    bool live;
    std::vector<std::size_t> old_runs;  ///< of bytes that were live and were not, by turns
    std::vector<Position> old_births;
  };

  struct Allocation {
    std::size_t bytes;  ///< as asked for
    std::size_t taken;  ///< whole chunks of the shadow
  };

  int index_;
  std::uintptr_t begin_ = 0;
  std::size_t total_;
  std::size_t used_ = 0;
  std::size_t next_ =
      0;  ///< addresses before it were used; they come again when the end is reached
  std::map<std::size_t, Allocation> live_;
  std::deque<Change> changes_;  ///< by position
  std::size_t applied_ = 0;     ///< how many of them the shadow has
  Shadow shadow_;
};

}  // namespace meshloom::emulator
