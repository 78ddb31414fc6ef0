// SPDX-License-Identifier: Apache-2.0
// Traffic: how many bytes a launch moves between a device's memory and its processors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace meshloom::emulator {

/// Counts sectors of 32 bytes that a cache of the size of a multiprocessor's own (256 KiB, 16 ways,
/// the one that was not used for the longest goes) fetches and writes back. So it counts what lanes
/// leave of a sector, and rows that are read again after others; not what a larger cache would
/// still have.
class Traffic {
 public:
  static constexpr std::size_t kSectorBytes = 32;

  /// Begins a launch with an empty cache.
  void begin();
  void touch(std::size_t offset, std::size_t bytes, bool reads, bool writes);
  /// Writes back what is left.
  void end();

  std::uint64_t moved() const { return moved_; }
  /// Every byte that the launch read before it wrote it, and every byte that it wrote, once.
  std::uint64_t least() const;

 private:
  static constexpr std::size_t kWays = 16, kSets = 512;

  /// Bytes of a sector are bits.
  struct Line {
    std::uint64_t sector = kNone;
    std::uint64_t used = 0;
    std::uint32_t valid = 0, dirty = 0;
  };
  struct Touched {
    std::uint32_t read = 0, written = 0;
  };
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  Line& line_of(std::uint64_t sector);
  void touch_sector(std::uint64_t sector, std::uint32_t bytes, bool reads, bool writes);

  std::array<std::array<Line, kWays>, kSets> lines_;
  std::unordered_map<std::uint64_t, Touched> touched_;
  std::uint64_t uses_ = 0, moved_ = 0;
};

}  // namespace meshloom::emulator
