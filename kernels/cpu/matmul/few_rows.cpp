// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/few_rows.h"

#include <algorithm>
#include <type_traits>

#include "kernels/base/error.h"
#include "kernels/base/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/few_rows.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // keep before highway.h
#include <hwy/highway.h>

#include "kernels/cpu/simd/register_products.h"
#include "kernels/cpu/simd/simd.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using tile::F32;
using tile::Operand;
using tile::V;

// How an operand's values lie in memory, and how many of them one vector of Elements holds.
template <typename Element>
using Value = std::conditional_t<kPerElement<Element> == 2, bfloat16, float>;
template <typename Element>
HWY_INLINE std::int64_t values_per_vector() {
  return tile::lanes() * kPerElement<Element>;
}
template <typename Element>
HWY_INLINE V load_values(const Value<Element>* p) {
  return Operand<Element>::load(reinterpret_cast<const Element*>(p));
}

// --- b by columns (transposed): every output is a dot product of two dense rows.

// One vector further along k: of rows of a `ldx` apart and columns of b `ldw` apart.
template <typename Element, int kRows, int kColumns>
HWY_INLINE void dot_step(const Value<Element>* x, std::int64_t ldx, const Value<Element>* w,
                         std::int64_t ldw, V (&sums)[kRows][kColumns]) {
  V columns[kColumns];
#pragma GCC unroll 4
  for (int c = 0; c < kColumns; ++c) columns[c] = load_values<Element>(w + c * ldw);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const V row = load_values<Element>(x + r * ldx);
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c)
      sums[r][c] = Operand<Element>::multiply_add(row, columns[c], sums[r][c]);
  }
}

// How a few rows are laid out over the registers: so many of them at a time by so many columns of
// b. One or two rows leave registers for more columns, which hide the latency of the sums. With 16
// registers five to eight rows take two passes over columns that the first one leaves in the
// first-level cache.
template <int kRows>
struct DotTile {
#if HWY_TARGET == HWY_AVX3
  static constexpr int kRowsAtOnce = kRows;
  static constexpr int kColumns = kRows <= 2 ? 4 : 2;
#else
  static constexpr int kRowsAtOnce = std::min(kRows, 4);
  static constexpr int kColumns = kRows <= 2 ? 4 : kRows <= 4 ? 2 : 3;
#endif
  static constexpr int kPasses = kRows > kRowsAtOnce ? 2 : 1;
};

// What a pass over columns asks for of columns to come: part `index` of `count` of each, or nothing
// where count is 0.
struct Prefetch {
  int index, count;
};

// Of kRows rows of a, from `first` on, and kColumns columns of b, each with one vector of sums, so
// that a sum's order is the same whatever else is computed beside it.
template <typename Element, int kRows, int kColumns, Prefetch kAsked>
HWY_INLINE void dot_block(const Gemm& g, std::int64_t first, std::int64_t column) {
  const std::int64_t step = values_per_vector<Element>();
  const std::int64_t k = g.k, lda = g.a.ld, ldb = g.b.ld;
  const auto* a = static_cast<const Value<Element>*>(g.a.data) + first * lda;
  const auto* b = static_cast<const Value<Element>*>(g.b.data) + column * ldb;
  V sums[kRows][kColumns];
  tile::clear(sums);
  std::int64_t i = 0;
  // With several rows, columns to come are asked for while these are multiplied, right into the
  // first-level cache and about 10 KB ahead for a thousand channels: what comes later than that is
  // waited for, what comes sooner pushes the rows of a out. Beyond b's end that does no harm. With
  // one or two rows the hardware is ahead of that. Two passes ask for a half each, since more at a
  // time than memory delivers holds up the products.
  constexpr int kParts = std::max(kAsked.count, 1);
  constexpr int kBlocksAhead = kPerElement<Element> == 2 ? 3 : kParts == 2 ? 1 : 2;
  const auto* next = b + kBlocksAhead * kColumns * ldb + kAsked.index * k / kParts;
  // A cache line of each column.
  constexpr std::int64_t kVectors =
      std::max<std::int64_t>(64 / (hn::MaxLanes(F32()) * sizeof(float)), 1);
  const auto step_at = [&](std::int64_t at) HWY_ATTR {
    dot_step<Element, kRows, kColumns>(a + at, lda, b + at, ldb, sums);
  };
  for (; i + kVectors * step <= k; i += kVectors * step) {
    if constexpr (kAsked.count > 0)
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) __builtin_prefetch(next + c * ldb + i / kParts, 0, 3);
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < kVectors; ++v) step_at(i + v * step);
  }
  if constexpr (kVectors > 1)
    for (; i + step <= k; i += step) step_at(i);
  if (i < k) {
    constexpr std::int64_t kMost = 2 * HWY_MAX_BYTES / sizeof(float);
    Value<Element> x[kRows * kMost] = {}, w[kColumns * kMost] = {};
    for (int r = 0; r < kRows; ++r) std::copy_n(a + r * lda + i, k - i, x + r * kMost);
    for (int c = 0; c < kColumns; ++c) std::copy_n(b + c * ldb + i, k - i, w + c * kMost);
    dot_step<Element, kRows, kColumns>(x, kMost, w, kMost, sums);
  }
  auto* y = static_cast<float*>(g.y) + first * g.ldy + column;
  V flat[kRows * kColumns];
#pragma GCC unroll 16
  for (int at = 0; at < kRows * kColumns; ++at) flat[at] = sums[at / kColumns][at % kColumns];
  alignas(64) float totals[kRows * kColumns];
  tile::sum_lanes_of_each(flat, totals);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) std::copy_n(totals + r * kColumns, kColumns, y + r * g.ldy);
}

// kRows rows of a by kColumns columns of b.
template <typename Element, int kRows, int kColumns>
HWY_INLINE void dot_passes(const Gemm& g, std::int64_t column) {
  using Tile = DotTile<kRows>;
  constexpr int kRest = kRows - Tile::kRowsAtOnce;
  constexpr int kParts = kRows > 2 ? Tile::kPasses : 0;
  dot_block<Element, Tile::kRowsAtOnce, kColumns, Prefetch{0, kParts}>(g, 0, column);
  if constexpr (kRest > 0)
    dot_block<Element, kRest, kColumns, Prefetch{1, kParts}>(g, Tile::kRowsAtOnce, column);
}

template <typename Element, int kRows>
void dot_columns(const Gemm& g, std::int64_t begin, std::int64_t end) {
  constexpr int kColumns = DotTile<kRows>::kColumns;
  std::int64_t j = begin;
  for (; j + kColumns <= end; j += kColumns) dot_passes<Element, kRows, kColumns>(g, j);
  for (; j < end; ++j) dot_passes<Element, kRows, 1>(g, j);
}

// --- b by rows: y's columns are summed in the first-level cache while rows of b pass.

// How many vectors of Elements from consecutive rows are taken at a time, how many rows ahead b is
// asked for and into which cache, and how many bytes of sums leave room for the rows of b that are
// on their way. Few rows of a gain by loading and storing their sums less often, several by what
// registers hold.
template <int kRows>
struct RowPanel {
#if HWY_TARGET == HWY_AVX3
  static constexpr std::int64_t kDepth = 8;
  static constexpr std::int64_t kSumBytes = 12 << 10;
  static constexpr int kLocality = 3;
#else
  static constexpr std::int64_t kDepth = kRows <= 2 ? 8 : 4;
  static constexpr std::int64_t kSumBytes = 20 << 10;
  static constexpr int kLocality = 2;  // rows 4 KB apart have few places in a first-level cache
#endif
  static constexpr std::int64_t kAhead = 8;
};

// Two vectors of kPerElement<Element> rows of b, the second right of the first.
template <typename Element>
HWY_INLINE void load_rows(const Value<Element>* row, std::int64_t ld, V& left, V& right);

template <>
HWY_INLINE void load_rows<float>(const float* row, std::int64_t, V& left, V& right) {
  left = hn::LoadU(F32(), row);
  right = hn::LoadU(F32(), row + tile::lanes());
}

#if HWY_TARGET == HWY_AVX3
template <>
HWY_INLINE void load_rows<Bf16Pair>(const bfloat16* row, std::int64_t ld, V& left, V& right) {
  alignas(64) static constexpr std::uint16_t kLeft[32] = {
      0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
      8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i first = _mm512_load_si512(kLeft);
  const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
  const __m512i upper = _mm512_loadu_si512(row), lower = _mm512_loadu_si512(row + ld);
  left = V{_mm512_castsi512_ps(_mm512_permutex2var_epi16(upper, first, lower))};
  right = V{_mm512_castsi512_ps(_mm512_permutex2var_epi16(upper, second, lower))};
}
#endif

// Adds kCount vectors of rows, from row `at` on, to the sums [kRows][width] of columns from
// `column` on. `a` holds the factors, rows of them `row_step` Elements apart.
template <typename Element, int kRows, int kCount>
HWY_INLINE void add_rows(const Gemm& g, const Element* a, std::int64_t row_step, std::int64_t at,
                         std::int64_t column, float* HWY_RESTRICT sums, std::int64_t width) {
  const F32 d;
  constexpr std::int64_t kPer = kPerElement<Element>;
  const std::int64_t n = tile::lanes(), ldb = g.b.ld;
  const auto* b = static_cast<const Value<Element>*>(g.b.data) + at * kPer * ldb + column;
  using Panel = RowPanel<kRows>;
  constexpr std::int64_t kAhead = Panel::kAhead * kPer;
  const bool more = at * kPer + kAhead + kCount * kPer <= g.k;
  for (std::int64_t j = 0; j < width; j += 2 * n) {
    V left[kCount], right[kCount];
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i)
      load_rows<Element>(b + i * kPer * ldb + j, ldb, left[i], right[i]);
    if (more)
#pragma GCC unroll 16
      for (int i = 0; i < kCount * kPer; ++i) {
        const Value<Element>* next = b + (kAhead + i) * ldb + j;
        __builtin_prefetch(next, 0, Panel::kLocality);
        if (sizeof(*next) * hn::MaxLanes(F32()) == 64)
          __builtin_prefetch(next + n, 0, Panel::kLocality);
      }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      float* sum = sums + r * width + j;
      V low = hn::LoadU(d, sum), high = hn::LoadU(d, sum + n);
#pragma GCC unroll 8
      for (int i = 0; i < kCount; ++i) {
        const V factor = Operand<Element>::spread(a + r * row_step + at + i);
        low = Operand<Element>::multiply_add(factor, left[i], low);
        high = Operand<Element>::multiply_add(factor, right[i], high);
      }
      hn::StoreU(low, d, sum);
      hn::StoreU(high, d, sum + n);
    }
  }
}

// Columns [column, column + width) by whole vectors; `a` as add_rows takes it.
template <typename Element, int kRows>
void sum_panel(const Gemm& g, const Element* a, std::int64_t depth, std::int64_t column,
               std::int64_t width, float* sums) {
  std::fill_n(sums, kRows * width, 0.0f);
  const std::int64_t whole = g.k / kPerElement<Element>;
  constexpr std::int64_t kDepth = RowPanel<kRows>::kDepth;
  std::int64_t at = 0;
  for (; at + kDepth <= whole; at += kDepth)
    add_rows<Element, kRows, kDepth>(g, a, depth, at, column, sums, width);
  for (; at < whole; ++at) add_rows<Element, kRows, 1>(g, a, depth, at, column, sums, width);
  float* y = static_cast<float*>(g.y) + column;
  for (int r = 0; r < kRows; ++r) std::copy_n(sums + r * width, width, y + r * g.ldy);
}

// One column by plain loops, in the order of the vectors' lanes; also the last row of an odd k.
template <typename Element, int kRows>
void finish_columns(const Gemm& g, std::int64_t begin, std::int64_t end, std::int64_t first_row) {
  const auto* a = static_cast<const Value<Element>*>(g.a.data);
  const auto* b = static_cast<const Value<Element>*>(g.b.data);
  for (int r = 0; r < kRows; ++r)
    for (std::int64_t j = begin; j < end; ++j) {
      float& y = static_cast<float*>(g.y)[r * g.ldy + j];
      if (first_row == 0) y = 0.0f;
      for (std::int64_t i = first_row; i < g.k; ++i)
        y += static_cast<float>(a[r * g.a.ld + i]) * static_cast<float>(b[i * g.b.ld + j]);
    }
}

template <typename Element, int kRows>
void sum_columns(const Gemm& g, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kSums = RowPanel<kRows>::kSumBytes / sizeof(float);
  alignas(64) float sums[kSums];
  const std::int64_t n = 2 * tile::lanes();
  const std::int64_t most = kSums / kRows / n * n;
  const std::int64_t depth = g.k / kPerElement<Element>;
  const std::int64_t vectors_end = begin + (end - begin) / n * n;
  const auto* factors = static_cast<const Element*>(g.a.data);
  const std::int64_t row_step = g.a.ld / kPerElement<Element>;
  for (std::int64_t j = begin; j < vectors_end; j += most)
    sum_panel<Element, kRows>(g, factors, row_step, j, std::min(most, vectors_end - j), sums);
  finish_columns<Element, kRows>(g, vectors_end, end, 0);
  if (depth * kPerElement<Element> < g.k)
    finish_columns<Element, kRows>(g, begin, vectors_end, depth * kPerElement<Element>);
}

template <typename Element, int kRows>
void columns_of(const Gemm& g, std::int64_t begin, std::int64_t end) {
  if (g.b.transposed) return dot_columns<Element, kRows>(g, begin, end);
  sum_columns<Element, kRows>(g, begin, end);
}

template <typename Element>
void columns_of(const Gemm& g, std::int64_t begin, std::int64_t end) {
  switch (g.m) {
    case 1: return columns_of<Element, 1>(g, begin, end);
    case 2: return columns_of<Element, 2>(g, begin, end);
    case 3: return columns_of<Element, 3>(g, begin, end);
    case 4: return columns_of<Element, 4>(g, begin, end);
    case 5: return columns_of<Element, 5>(g, begin, end);
    case 6: return columns_of<Element, 6>(g, begin, end);
    case 7: return columns_of<Element, 7>(g, begin, end);
    default: return columns_of<Element, 8>(g, begin, end);
  }
}

void few_rows_f32(const Gemm& g, std::int64_t begin, std::int64_t end) {
  columns_of<float>(g, begin, end);
}

void few_rows_bf16(const Gemm& g, std::int64_t begin, std::int64_t end) {
#if HWY_TARGET == HWY_AVX3
  columns_of<Bf16Pair>(g, begin, end);
#else
  (void)g, (void)begin, (void)end;
  throw InternalError("few rows of bfloat16 without its dot products");
#endif
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(few_rows_f32);
HWY_EXPORT(few_rows_bf16);

}  // namespace

void few_rows_product(Threads threads, DType operands, const Gemm& gemm) {
  // Whole cache lines of y and of b's rows to a thread, and enough work to be worth it.
  constexpr std::int64_t kColumns = 64;
  const std::int64_t pieces = (gemm.n + kColumns - 1) / kColumns;
  const std::int64_t grain = std::max<std::int64_t>(1, (64 << 10) / (kColumns * gemm.k));
  parallel_for(threads, pieces, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t last = std::min(end * kColumns, gemm.n);
    if (operands == DType::kFloat32)
      HWY_DYNAMIC_DISPATCH(few_rows_f32)(gemm, begin * kColumns, last);
    else
      HWY_DYNAMIC_DISPATCH(few_rows_bf16)(gemm, begin * kColumns, last);
  });
}

}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
