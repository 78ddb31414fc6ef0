// SPDX-License-Identifier: Apache-2.0
// Shadow: what the emulator knows of each byte of a range of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace meshloom::emulator {

/// Counts the intervals between barriers, of all blocks of all launches and of all other work, one
/// after another. 0 is none.
using Epoch = std::uint32_t;

/// Threads of a block in a cell: the number of one in the low bits.
inline constexpr std::uint16_t kThreadBits = 0x3ff;
inline constexpr std::uint16_t kByAtomic = 0x8000;    ///< written by an atomic instruction
inline constexpr std::uint16_t kManyLanes = 0x4000;   ///< read by several lanes of a warp
inline constexpr std::uint16_t kManyWarps = 0x2000;   ///< read by several warps
inline constexpr std::uint16_t kManyBlocks = 0x1000;  ///< read by several blocks of the launch

/// Who touched a byte last. A write forgets the reads: whoever comes after the write in a legal
/// order comes after them too.
struct Cell {
  Epoch write = 0;
  Epoch read = 0;
  Epoch other_read = 0;  ///< by work that nothing orders before that of `read`
  std::uint16_t write_thread = 0;
  std::uint16_t read_thread = 0;
  std::uint16_t write_sync = 0;  ///< how many __syncwarp the thread had passed in its interval
  std::uint16_t read_sync = 0;

  // It has no padding.
  bool operator==(const Cell& other) const {
    return __builtin_memcmp(this, &other, sizeof(Cell)) == 0;
  }
};

/// Kept in chunks that are made when they are first asked for. Used under the emulator's lock.
class Shadow {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
  /// Memory is handed out by blocks of so many bytes at least, aligned to as many.
  static constexpr std::size_t kGranule = 256;

  struct Chunk {
    Cell cells[kChunkBytes];
    std::uint8_t live[kChunkBytes / 8];           ///< a bit for each byte that may be touched
    std::uint32_t birth[kChunkBytes / kGranule];  ///< the position at which it became so
  };

  explicit Shadow(std::size_t bytes) : chunks_(bytes / kChunkBytes) {}
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  Chunk& chunk(std::size_t offset) {
    Chunk*& chunk = chunks_[offset / kChunkBytes];
    if (chunk == nullptr) chunk = make_chunk();
    return *chunk;
  }
  Cell& cell(std::size_t offset) { return chunk(offset).cells[offset % kChunkBytes]; }
  bool is_live(std::size_t offset);
  std::uint32_t birth(std::size_t offset);
  /// For bytes of one chunk.
  bool all_live(std::size_t offset, std::size_t bytes) {
    if (bytes > 16) return same_bytes(offset, bytes, true) == bytes;
    const std::size_t at = offset % kChunkBytes;
    std::uint32_t bits = 0;
    __builtin_memcpy(&bits, chunk(offset).live + at / 8, sizeof bits);
    const std::uint32_t all = (1u << bytes) - 1;
    return (bits >> at % 8 & all) == all;
  }
  /// Returns how many of the bytes may be touched, or may not, from the first on.
  std::size_t same_bytes(std::size_t offset, std::size_t bytes, bool live);

  void set_live(std::size_t offset, std::size_t bytes, bool live);
  void set_birth(std::size_t offset, std::size_t bytes, std::uint32_t position);
  /// Forgets all of a range of whole chunks.
  void drop(std::size_t offset, std::size_t bytes);

 private:
  static Chunk* make_chunk();

  std::vector<Chunk*> chunks_;
};

}  // namespace meshloom::emulator
