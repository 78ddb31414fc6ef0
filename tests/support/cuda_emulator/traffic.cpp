// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/traffic.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace meshloom::emulator {

void Traffic::begin() {
  for (auto& set : lines_) set.fill({});
  touched_.clear();
  uses_ = moved_ = 0;
}

void Traffic::touch(std::size_t offset, std::size_t bytes, bool reads, bool writes) {
  for (const std::size_t end = offset + bytes; offset < end;) {
    const std::size_t at = offset % kSectorBytes;
    const std::size_t count = std::min(kSectorBytes - at, end - offset);
    const std::uint32_t mask = ~std::uint32_t{0} >> (kSectorBytes - count) << at;
    touch_sector(offset / kSectorBytes, mask, reads, writes);
    offset += count;
  }
}

void Traffic::end() {
  for (auto& set : lines_)
    for (Line& line : set)
      if (std::exchange(line.dirty, 0) != 0) moved_ += kSectorBytes;
}

std::uint64_t Traffic::least() const {
  std::uint64_t bytes = 0;
  for (const auto& [sector, touched] : touched_)
    bytes +=
        static_cast<std::uint64_t>(std::popcount(touched.read) + std::popcount(touched.written));
  return bytes;
}

Traffic::Line& Traffic::line_of(std::uint64_t sector) {
  // Neighbours and multiples of large powers of two go to different sets.
  auto& set = lines_[(sector ^ sector / kSets * 0x9e5u) % kSets];
  Line* oldest = &set[0];
  for (Line& line : set) {
    if (line.sector == sector) return line;
    if (line.used < oldest->used) oldest = &line;
  }
  if (oldest->dirty != 0) moved_ += kSectorBytes;
  *oldest = {sector};
  return *oldest;
}

void Traffic::touch_sector(std::uint64_t sector, std::uint32_t bytes, bool reads, bool writes) {
  Line& line = line_of(sector);
  line.used = ++uses_;
  Touched& touched = touched_[sector];
  if (reads) {
    if ((bytes & ~line.valid) != 0) {
      moved_ += kSectorBytes;
      line.valid = ~std::uint32_t{0};
    }
    touched.read |= bytes & ~touched.written;
  }
  if (!writes) return;
  line.valid |= bytes;
  line.dirty |= bytes;
  touched.written |= bytes;
}

}  // namespace meshloom::emulator
