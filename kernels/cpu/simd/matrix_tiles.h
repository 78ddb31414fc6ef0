// SPDX-License-Identifier: Apache-2.0
// The tile registers of AMX (Intel 64 and IA-32 Architectures Software Developer's Manual, volume
// 1, chapter 18): eight of 16 rows by 64 bytes, which hold 16 x 16 float32 sums or 16 x 16 pairs of
// bfloat16.
//
// Two classes with the same functions, as parameters of templates: the CPU's registers, and a model
// of them in plain code, with which products are checked on CPUs that have none. An object stands
// for a thread's registers while it lives; all of them are 16 rows by 64 bytes and begin as zeros.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd/bf16_pair.h"

namespace meshloom::kernels::cpu {

/// Rows of a tile, and its columns of float32 or of pairs.
inline constexpr std::int64_t kTileSide = 16;

/// ModelTiles has the registers as plain memory. A pair's two products are added one after the
/// other in float32, which is not the order that every CPU takes.
class ModelTiles {
 public:
  template <int kTile>
  void clear() {
    tiles_[kTile] = {};
  }

  /// Rows lie `bytes` apart.
  template <int kTile>
  void load(const void* from, std::int64_t bytes) {
    for (std::int64_t r = 0; r < kTileSide; ++r)
      std::memcpy(tiles_[kTile].data() + r * kTileSide,
                  static_cast<const std::byte*>(from) + r * bytes, kTileSide * sizeof(float));
  }
  template <int kTile>
  void store(void* to, std::int64_t bytes) const {
    for (std::int64_t r = 0; r < kTileSide; ++r)
      std::memcpy(static_cast<std::byte*>(to) + r * bytes, tiles_[kTile].data() + r * kTileSide,
                  kTileSide * sizeof(float));
  }

  /// sums [16, 16] += a [16 rows, 16 pairs] b [16 pairs, 16 columns].
  template <int kSums, int kA, int kB>
  void multiply_add() {
    for (std::int64_t r = 0; r < kTileSide; ++r)
      for (std::int64_t p = 0; p < kTileSide; ++p)
        for (std::int64_t c = 0; c < kTileSide; ++c)
          add_pair(tiles_[kSums][r * kTileSide + c], tiles_[kA][r * kTileSide + p],
                   tiles_[kB][p * kTileSide + c]);
  }

 private:
  static float low(std::uint32_t pair) { return std::bit_cast<float>(pair << 16); }
  static float high(std::uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }
  static void add_pair(std::uint32_t& sum, std::uint32_t a, std::uint32_t b) {
    const float with_low = std::bit_cast<float>(sum) + low(a) * low(b);
    sum = std::bit_cast<std::uint32_t>(with_low + high(a) * high(b));
  }

  std::array<std::array<std::uint32_t, kTileSide * kTileSide>, 8> tiles_{};
};

#if defined(__x86_64__)
/// AmxTiles are the CPU's own (CpuClass::kAmx). As assembly, since files that use it are compiled
/// for CPUs without AMX as well.
class AmxTiles {
 public:
  AmxTiles() {
    struct alignas(64) Config {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const config;
    static_assert(sizeof(config) == 64);
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
  }
  ~AmxTiles() { __asm__ volatile("tilerelease"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int kTile>
  void clear() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  void load(const void* from, std::int64_t bytes) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(from), "r"(bytes), "i"(kTile)
                     : "memory");
  }
  template <int kTile>
  void store(void* to, std::int64_t bytes) const {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                     :
                     : "r"(to), "r"(bytes), "i"(kTile)
                     : "memory");
  }
  template <int kSums, int kA, int kB>
  void multiply_add() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
  }
};
#endif

/// multiply_tiles reads these: up to 32 rows of a [rows, depth] and b [depth, columns].
struct TileOperands {
  std::int64_t depth = 0;  ///< pairs, a multiple of 16
  const Bf16Pair* a = nullptr;
  std::int64_t a_row = 0;    ///< pairs from a row to the next
  std::int64_t a_step = 0;   ///< pairs from 16 pairs of depth to the next
  std::int64_t a_lower = 0;  ///< pairs from the first 16 rows to the next 16
  const Bf16Pair* b = nullptr;
  std::int64_t ldb = 0;  ///< pairs from a row of pairs to the next
};

/// to = from + a b for 16 * kRows rows and 16 * kColumns columns (1 or 2 each), in registers on the
/// way. Rows of sums lie ld_from and ld_to apart. `from` null: zeros; it may be `to`.
template <int kRows, int kColumns, typename Tiles>
void multiply_tiles(Tiles& tiles, const TileOperands& in, const float* from, std::int64_t ld_from,
                    float* to, std::int64_t ld_to) {
  constexpr std::int64_t kBytes = sizeof(float);
  static_assert(sizeof(Bf16Pair) == sizeof(float));
  if (from == nullptr) {
    tiles.template clear<0>();
    if constexpr (kColumns == 2) tiles.template clear<1>();
    if constexpr (kRows == 2) tiles.template clear<2>();
    if constexpr (kRows == 2 && kColumns == 2) tiles.template clear<3>();
  } else {
    const float* lower = from + kTileSide * ld_from;
    tiles.template load<0>(from, ld_from * kBytes);
    if constexpr (kColumns == 2) tiles.template load<1>(from + kTileSide, ld_from * kBytes);
    if constexpr (kRows == 2) tiles.template load<2>(lower, ld_from * kBytes);
    if constexpr (kRows == 2 && kColumns == 2)
      tiles.template load<3>(lower + kTileSide, ld_from * kBytes);
  }
  const Bf16Pair *a = in.a, *b = in.b;
  for (std::int64_t p = 0; p < in.depth; p += kTileSide) {
    tiles.template load<4>(a, in.a_row * kBytes);
    tiles.template load<6>(b, in.ldb * kBytes);
    tiles.template multiply_add<0, 4, 6>();
    if constexpr (kColumns == 2) {
      tiles.template load<7>(b + kTileSide, in.ldb * kBytes);
      tiles.template multiply_add<1, 4, 7>();
    }
    if constexpr (kRows == 2) {
      tiles.template load<5>(a + in.a_lower, in.a_row * kBytes);
      tiles.template multiply_add<2, 5, 6>();
      if constexpr (kColumns == 2) tiles.template multiply_add<3, 5, 7>();
    }
    a += in.a_step;
    b += kTileSide * in.ldb;
  }
  float* lower = to + kTileSide * ld_to;
  tiles.template store<0>(to, ld_to * kBytes);
  if constexpr (kColumns == 2) tiles.template store<1>(to + kTileSide, ld_to * kBytes);
  if constexpr (kRows == 2) tiles.template store<2>(lower, ld_to * kBytes);
  if constexpr (kRows == 2 && kColumns == 2)
    tiles.template store<3>(lower + kTileSide, ld_to * kBytes);
}

/// Does the same for up to 32 rows and columns, of which only those tiles are computed that hold
/// any.
template <typename Tiles>
void multiply_tiles(Tiles& tiles, std::int64_t rows, std::int64_t columns, const TileOperands& in,
                    const float* from, std::int64_t ld_from, float* to, std::int64_t ld_to) {
  if (rows > kTileSide && columns > kTileSide)
    return multiply_tiles<2, 2>(tiles, in, from, ld_from, to, ld_to);
  if (rows > kTileSide) return multiply_tiles<2, 1>(tiles, in, from, ld_from, to, ld_to);
  if (columns > kTileSide) return multiply_tiles<1, 2>(tiles, in, from, ld_from, to, ld_to);
  multiply_tiles<1, 1>(tiles, in, from, ld_from, to, ld_to);
}

}  // namespace meshloom::kernels::cpu
