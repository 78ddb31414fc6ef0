// SPDX-License-Identifier: Apache-2.0
// Panels of operands as packed_product's register tiles read them, for AVX-512. Included once
// per target after hwy/highway.h (the guard toggles).
#if defined(MESHLOOM_KERNELS_CPU_PACKED_PANELS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_KERNELS_CPU_PACKED_PANELS_H_
#undef MESHLOOM_KERNELS_CPU_PACKED_PANELS_H_
#else
#define MESHLOOM_KERNELS_CPU_PACKED_PANELS_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/base/half.h"
#include "kernels/cpu/simd/bf16_pair.h"
#include "kernels/cpu/simd/matrix_tiles.h"
#include "kernels/cpu/simd/simd.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace packed {

namespace hn = hwy::HWY_NAMESPACE;

template <typename Element>
using Value = std::conditional_t<kPerElement<Element> == 2, bfloat16, float>;

/// Lines are lines (rows of a, columns of b) of values along k. Either a line's values lie next to
/// each other and lines `ld` apart, or the other way round.
template <typename Element>
struct Lines {
  const Value<Element>* data = nullptr;
  std::int64_t ld = 0;
  bool dense = false;  ///< a line's values lie next to each other

  Lines at(std::int64_t line, std::int64_t value) const {
    return {data + (dense ? line * ld + value : value * ld + line), ld, dense};
  }
};

/// Returns element i of a line whose values are `step` apart, of which `values` are left; the
/// missing half of a pair is 0.
template <typename Element>
HWY_INLINE std::uint32_t element_bits(const Value<Element>* line, std::int64_t step, std::int64_t i,
                                      std::int64_t values) {
  if constexpr (kPerElement<Element> == 2) {
    const std::uint32_t low = line[2 * i * step].bits;
    const std::uint32_t high = 2 * i + 1 < values ? line[(2 * i + 1) * step].bits : 0;
    return low | high << 16;
  } else {
    std::uint32_t bits;
    std::memcpy(&bits, line + i * step, sizeof(bits));
    return bits;
  }
}

// Packs lines [first, count) and zeros behind them, element by element.
template <typename Element, int kWidth>
void pack_singly(std::uint32_t* to, const Lines<Element>& lines, std::int64_t first,
                 std::int64_t count, std::int64_t values) {
  const std::int64_t elements = elements_of<Element>(values);
  const std::int64_t step = lines.dense ? 1 : lines.ld;
  for (std::int64_t j = first; j < kWidth; ++j) {
    const Value<Element>* line = lines.data + (lines.dense ? j * lines.ld : j);
    for (std::int64_t i = 0; i < elements; ++i)
      to[i * kWidth + j] = j < count ? element_bits<Element>(line, step, i, values) : 0;
  }
}

template <int kLines>
HWY_INLINE void store_lines(std::uint32_t* to, __m512i elements) {
  if constexpr (kLines == 16)
    _mm512_storeu_si512(to, elements);
  else
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(elements));
}

// kLines (16 or 8) dense lines of 16 elements change places: rows of `to` are `step` elements
// apart. By halves of pairs, as Eklundh, "A Fast Computer Method for Matrix Transposing" (IEEE
// Transactions on Computers C-21(7), 1972).
template <int kLines>
HWY_INLINE void transpose_lines(const std::uint8_t* from, std::int64_t line_bytes,
                                std::uint32_t* to, std::int64_t step) {
  __m512i in[16], out[16];
#pragma GCC unroll 16
  for (int l = 0; l < 16; ++l)
    in[l] = l < kLines ? _mm512_loadu_si512(from + l * line_bytes) : _mm512_setzero_si512();
#pragma GCC unroll 8
  for (int l = 0; l < 16; l += 2) {
    out[l] = _mm512_unpacklo_epi32(in[l], in[l + 1]);
    out[l + 1] = _mm512_unpackhi_epi32(in[l], in[l + 1]);
  }
#pragma GCC unroll 4
  for (int l = 0; l < 16; l += 4) {
    in[l] = _mm512_unpacklo_epi64(out[l], out[l + 2]);
    in[l + 1] = _mm512_unpackhi_epi64(out[l], out[l + 2]);
    in[l + 2] = _mm512_unpacklo_epi64(out[l + 1], out[l + 3]);
    in[l + 3] = _mm512_unpackhi_epi64(out[l + 1], out[l + 3]);
  }
  // Each 128 bits now hold an element of 4 lines: in[4 * g + e], block c holds element 4 * c + e of
  // lines 4 * g to 4 * g + 3.
#pragma GCC unroll 4
  for (int e = 0; e < 4; ++e) {
    const __m512i low01 = _mm512_shuffle_i32x4(in[e], in[e + 4], 0x44);
    const __m512i high01 = _mm512_shuffle_i32x4(in[e], in[e + 4], 0xee);
    const __m512i low23 = _mm512_shuffle_i32x4(in[e + 8], in[e + 12], 0x44);
    const __m512i high23 = _mm512_shuffle_i32x4(in[e + 8], in[e + 12], 0xee);
    store_lines<kLines>(to + e * step, _mm512_shuffle_i32x4(low01, low23, 0x88));
    store_lines<kLines>(to + (e + 4) * step, _mm512_shuffle_i32x4(low01, low23, 0xdd));
    store_lines<kLines>(to + (e + 8) * step, _mm512_shuffle_i32x4(high01, high23, 0x88));
    store_lines<kLines>(to + (e + 12) * step, _mm512_shuffle_i32x4(high01, high23, 0xdd));
  }
}

// Packs dense lines, 16 (or a narrow panel's 8) at a time, the last few one by one.
template <typename Element, int kWidth>
void pack_dense(std::uint32_t* HWY_RESTRICT to, const Lines<Element>& lines, std::int64_t count,
                std::int64_t values) {
  constexpr std::int64_t kBytes = sizeof(Value<Element>);
  constexpr int kLines = std::min(kWidth, 16);
  const std::int64_t whole = values / (16 * kPerElement<Element>)*16;
  std::int64_t j = 0;
  for (; j + kLines <= count; j += kLines) {
    const Value<Element>* line = lines.data + j * lines.ld;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(line);
    for (std::int64_t i = 0; i < whole; i += 16)
      transpose_lines<kLines>(bytes + 4 * i, lines.ld * kBytes, to + i * kWidth + j, kWidth);
    for (std::int64_t i = whole; i < elements_of<Element>(values); ++i)
      for (int l = 0; l < kLines; ++l)
        to[i * kWidth + j + l] = element_bits<Element>(line + l * lines.ld, 1, i, values);
  }
  if (j < kWidth) pack_singly<Element, kWidth>(to, lines, j, count, values);
}

// Rows of values to come, at about the distance that hides a fetch from memory (asking beyond the
// end does no harm).
inline constexpr std::int64_t kRowsAhead = 16;
template <typename Element>
HWY_INLINE void prefetch_rows(const Value<Element>* row, std::int64_t ld, std::int64_t lines) {
  constexpr std::int64_t kLine = 64 / sizeof(*row);
  for (std::int64_t r = 0; r < kPerElement<Element>; ++r)
    for (std::int64_t j = 0; j < lines; j += kLine) __builtin_prefetch(row + r * ld + j, 0, 2);
}

// Values of neighbouring lines lie next to each other: as many panels at a time as make up a few
// cache lines, since one row of values lies pages apart from the next.
template <typename Element, int kWidth>
void pack_across(std::uint32_t* HWY_RESTRICT to, std::int64_t panel_step,
                 const Lines<Element>& lines, std::int64_t panels, std::int64_t values) {
  const hn::CappedTag<std::uint32_t, kWidth % 16 == 0 ? 16 : 8> d;
  const hn::Rebind<std::uint16_t, decltype(d)> d_half;
  const std::int64_t n = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t elements = elements_of<Element>(values);
  for (std::int64_t i = 0; i < elements; ++i, to += kWidth) {
    const Value<Element>* row = lines.data + i * kPerElement<Element> * lines.ld;
    prefetch_rows<Element>(row + kRowsAhead * lines.ld, lines.ld, panels * kWidth);
    for (std::int64_t p = 0; p < panels; ++p, row += kWidth) {
      for (std::int64_t j = 0; j < kWidth; j += n) {
        std::uint32_t* at = to + p * panel_step + j;
        if constexpr (kPerElement<Element> == 2) {
          const auto bits = [&](const bfloat16* v)
                                HWY_ATTR { return hn::PromoteTo(d, hn::LoadU(d_half, &v->bits)); };
          auto pairs = bits(row + j);
          if (2 * i + 1 < values)
            pairs = hn::Or(pairs, hn::ShiftLeft<16>(bits(row + lines.ld + j)));
          hn::StoreU(pairs, d, at);
        } else {
          hn::StoreU(hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(row + j)), d, at);
        }
      }
    }
  }
}

/// Packs panels of kWidth lines: to[p * kWidth * depth + i * kWidth + j] = element i of line p *
/// kWidth + j, of `count` lines and their next `values` values, which are `depth` elements or
/// fewer. Lines behind `count` and elements behind `values` are 0.
template <typename Element, int kWidth>
void pack_panels(Element* to, const Lines<Element>& lines, std::int64_t count, std::int64_t values,
                 std::int64_t depth) {
  auto* bits = reinterpret_cast<std::uint32_t*>(to);
  const std::int64_t panel_step = kWidth * depth;
  const std::int64_t filled = kWidth * elements_of<Element>(values);
  constexpr std::int64_t kGroup = kWidth < 16 ? 8 : 5;
  const std::int64_t whole = lines.dense ? 0 : count / kWidth;
  for (std::int64_t p = 0; p < whole; p += kGroup)
    pack_across<Element, kWidth>(bits + p * panel_step, panel_step, lines.at(p * kWidth, 0),
                                 std::min(kGroup, whole - p), values);
  for (std::int64_t p = whole; p * kWidth < count; ++p) {
    const Lines<Element> rest = lines.at(p * kWidth, 0);
    const std::int64_t left = std::min<std::int64_t>(kWidth, count - p * kWidth);
    if (lines.dense)
      pack_dense<Element, kWidth>(bits + p * panel_step, rest, left, values);
    else
      pack_singly<Element, kWidth>(bits + p * panel_step, rest, 0, left, values);
  }
  for (std::int64_t p = 0; filled < panel_step && p * kWidth < count; ++p)
    std::fill(bits + p * panel_step + filled, bits + (p + 1) * panel_step, 0u);
}

// Packs one tile of pairs, 16 lines by 16 pairs one behind the other: lines from `count` on and
// values from `values` on are 0.
inline void pack_tile(std::uint32_t* to, const Lines<Bf16Pair>& lines, std::int64_t count,
                      std::int64_t values) {
  constexpr int kSide = static_cast<int>(kTileSide);
  constexpr std::int64_t kValues = 2 * kTileSide;
  if (count < kSide || values < kValues) {
    const std::int64_t step = lines.dense ? 1 : lines.ld;
    std::fill_n(to, kSide * kSide, 0u);
    for (std::int64_t r = 0; r < std::min<std::int64_t>(count, kSide); ++r) {
      const bfloat16* line = lines.data + (lines.dense ? r * lines.ld : r);
      for (std::int64_t i = 0; 2 * i < std::min(values, kValues); ++i)
        to[r * kSide + i] = element_bits<Bf16Pair>(line, step, i, values);
    }
  } else if (lines.dense) {
    for (std::int64_t r = 0; r < kSide; ++r)
      _mm512_storeu_si512(to + r * kSide, _mm512_loadu_si512(lines.data + r * lines.ld));
  } else {
    alignas(64) std::uint32_t across[kSide * kSide];
    pack_across<Bf16Pair, kSide>(across, 0, lines, 1, kValues);
    transpose_lines<kSide>(reinterpret_cast<const std::uint8_t*>(across), kSide * sizeof(*to), to,
                           kSide);
  }
}

/// Packs tiles of 16 lines by 16 pairs for the tile registers, of 16 lines after the other: to[(l *
/// depth + i) * 16 ..] = tile of lines 16 * l and pairs i, of `count` lines and their next `values`
/// values. `depth` is a multiple of 16 pairs; what is behind `count` and `values` is 0.
inline void pack_tiles(Bf16Pair* to, const Lines<Bf16Pair>& lines, std::int64_t count,
                       std::int64_t values, std::int64_t depth) {
  auto* bits = reinterpret_cast<std::uint32_t*>(to);
  // Two tiles of values that lie next to each other fill a cache line.
  constexpr std::int64_t kGroup = 2 * kTileSide;
  for (std::int64_t first = 0; first < count; first += kGroup)
    for (std::int64_t i = 0; i < depth; i += kTileSide)
      for (std::int64_t l = first; l < std::min(first + kGroup, count); l += kTileSide)
        pack_tile(bits + l * depth + i * kTileSide, lines.at(l, 2 * i), count - l, values - 2 * i);
}

}  // namespace packed
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif
