// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/packed_product.h"

#include <algorithm>
#include <atomic>

#include "kernels/base/error.h"
#include "kernels/cpu/span_workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/packed_product.cpp"
#include <hwy/foreach_target.h>  // keep before highway.h
#include <hwy/highway.h>

#include "kernels/cpu/packed_panels.h"
#include "kernels/cpu/register_products.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX3

namespace hn = hwy::HWY_NAMESPACE;
using packed::Lines;
using packed::Value;
using tile::F32;
using tile::V;

constexpr int kRows = static_cast<int>(kPackedRows);
constexpr std::int64_t kLanes = kPackedColumns / 3;

// Where a register tile's sums go.
template <typename Out>
struct Target {
  float* sums = nullptr;  // of the parts of k so far: y itself, or memory of its own
  std::int64_t ld_sums = 0;
  bool add_sums = false;  // `sums` holds something
  bool last = false;      // no part of k is left: y gets its values
  Out* y = nullptr;
  std::int64_t ldy = 0;
  bool add_y = false;
  const float* bias = nullptr;

  Target at(std::int64_t row, std::int64_t column) const {
    Target moved = *this;
    moved.sums += row * ld_sums + column;
    moved.y += row * ldy + column;
    if (bias != nullptr) moved.bias += column;
    return moved;
  }
};

// A vector's columns from p on, `count` of them (a vector's, or fewer).
template <typename T>
HWY_INLINE V load_columns(const T* p, std::int64_t count) {
  return count >= kLanes ? simd::load(F32(), p)
                         : simd::load_n(F32(), p, static_cast<std::size_t>(count));
}
template <typename T>
HWY_INLINE void store_columns(V v, T* p, std::int64_t count) {
  if (count >= kLanes) return simd::store(F32(), v, p);
  simd::store_n(F32(), v, p, static_cast<std::size_t>(count));
}

// A register tile's sums: its rows are kPackedColumns apart.
using Tile = float[kPackedRows * kPackedColumns];

// kRows rows of a (one behind the other in a panel, or row_step apart where they lie) by kVectors
// vectors of b's columns. It does nothing else, so that all sums stay in registers.
template <int kVectors, bool kPanel, typename Element>
HWY_NOINLINE void multiply_tile(std::int64_t depth, const Element* a, std::int64_t row_step,
                                const Element* b, Tile& sums) {
  V acc[kRows][kVectors];
  tile::clear(acc);
  if constexpr (kPanel)
    tile::multiply<kRows, kVectors, 1, kRows>(depth, a, b, kPackedColumns, acc);
  else
    tile::multiply_rows<kRows, kVectors>(depth, a, row_step, b, kPackedColumns, acc);
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v)
      hn::Store(acc[m][v], F32(), sums + m * kPackedColumns + v * kLanes);
}

template <bool kPanel, typename Element>
void multiply_tile(std::int64_t depth, const Element* a, std::int64_t row_step, const Element* b,
                   std::int64_t columns, Tile& sums) {
  if (columns > 2 * kLanes) return multiply_tile<3, kPanel>(depth, a, row_step, b, sums);
  if (columns > kLanes) return multiply_tile<2, kPanel>(depth, a, row_step, b, sums);
  multiply_tile<1, kPanel>(depth, a, row_step, b, sums);
}

template <typename Out>
void store_tile(const Tile& tile, const Target<Out>& to, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t column = 0; column < columns; column += kLanes) {
      const std::int64_t count = columns - column;
      float* sums = to.sums + m * to.ld_sums + column;
      V value = hn::Load(F32(), tile + m * kPackedColumns + column);
      if (to.add_sums) value = hn::Add(value, load_columns(sums, count));
      if (!to.last) {
        store_columns(value, sums, count);
        continue;
      }
      Out* y = to.y + m * to.ldy + column;
      if (to.bias != nullptr) value = hn::Add(value, load_columns(to.bias + column, count));
      if (to.add_y) value = hn::Add(value, load_columns(y, count));
      store_columns(value, y, count);
    }
  }
}

// A store finds its lines in the cache, though the products before it read others.
template <typename T>
void prefetch_tile(const T* p, std::int64_t ld, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t column = 0; column < columns; column += kLine)
      __builtin_prefetch(p + m * ld + column, 1, 3);
}

// One worker's way through tiles of y.
template <typename Element, typename Out>
class Worker {
 public:
  Worker(const Gemm& g, const PackedPlan& plan, const float* bias, std::byte* scratch)
      : g_(g),
        plan_(plan),
        bias_(bias),
        a_{static_cast<const Value<Element>*>(g.a.data), g.a.ld, !g.a.transposed},
        b_{static_cast<const Value<Element>*>(g.b.data), g.b.ld, g.b.transposed},
        a_panels_(reinterpret_cast<Element*>(scratch)),
        b_panels_(reinterpret_cast<Element*>(scratch + plan.a_bytes)),
        sums_(reinterpret_cast<float*>(scratch + plan.a_bytes + plan.b_bytes)) {}

  void run(std::int64_t task) {
    row_ = task % plan_.row_tiles * plan_.tile_rows;
    rows_ = std::min(plan_.tile_rows, g_.m - row_);
    const std::int64_t begin = task / plan_.row_tiles * plan_.tile_columns;
    const std::int64_t end = std::min(begin + plan_.tile_columns, g_.n);
    // Where y holds the sums between parts of k, a is packed once for all columns of the tile; else
    // the columns come one block at a time, so that their sums stay in the cache.
    const std::int64_t step = plan_.keeps_sums ? kBlockColumns : end - begin;
    for (std::int64_t first = begin; first < end; first += step)
      for (std::int64_t k = 0; k < g_.k; k += plan_.part_depth)
        run_part(k, first, std::min(first + step, end));
  }

 private:
  // Values [k, k + part_depth) of all rows of the tile and these columns.
  void run_part(std::int64_t k, std::int64_t begin, std::int64_t end) {
    values_ = std::min(plan_.part_depth, g_.k - k);
    depth_ = elements_of<Element>(values_);
    if (plan_.packs_a) pack_a(k);
    for (std::int64_t column = begin; column < end; column += kBlockColumns)
      run_block(k, column, std::min(column + kBlockColumns, end));
  }

  void pack_a(std::int64_t k) {
    packed::pack_panels<Element, kRows>(a_panels_, a_.at(row_, k), rows_, values_);
  }

  void run_block(std::int64_t k, std::int64_t begin, std::int64_t end) {
    packed::pack_panels<Element, static_cast<int>(kPackedColumns)>(b_panels_, b_.at(begin, k),
                                                                   end - begin, values_);
    const Target<Out> to = target(k, begin);
    std::int64_t i = 0;
    for (; i + kRows <= rows_; i += kRows) {
      if (plan_.packs_a) {
        run_rows<true>(a_panels_ + i * depth_, 0, to, i, kRows, end - begin);
      } else {
        const auto* rows = reinterpret_cast<const Element*>(a_.at(row_ + i, k).data);
        run_rows<false>(rows, a_.ld / kPerElement<Element>, to, i, kRows, end - begin);
      }
    }
    if (i == rows_) return;
    Element* rest = plan_.packs_a ? a_panels_ + i * depth_ : a_panels_;
    if (!plan_.packs_a)
      packed::pack_panels<Element, kRows>(rest, a_.at(row_ + i, k), rows_ - i, values_);
    run_rows<true>(rest, 0, to, i, rows_ - i, end - begin);
  }

  template <bool kPanel>
  void run_rows(const Element* a, std::int64_t row_step, const Target<Out>& to, std::int64_t row,
                std::int64_t rows, std::int64_t columns) {
    for (std::int64_t j = 0; j < columns; j += kPackedColumns) {
      const std::int64_t count = std::min(kPackedColumns, columns - j);
      const Target<Out> tile = to.at(row, j);
      if (tile.add_sums || !tile.last) prefetch_tile(tile.sums, tile.ld_sums, rows, count);
      if (tile.last) prefetch_tile(tile.y, tile.ldy, rows, count);
      multiply_tile<kPanel>(depth_, a, row_step, b_panels_ + j * depth_, count, tile_);
      store_tile(tile_, tile, rows, count);
    }
  }

  Target<Out> target(std::int64_t k, std::int64_t column) const {
    Target<Out> to;
    to.y = static_cast<Out*>(g_.y) + row_ * g_.ldy + column;
    to.ldy = g_.ldy;
    to.last = k + values_ == g_.k;
    to.bias = bias_ != nullptr ? bias_ + column : nullptr;
    if constexpr (sizeof(Out) == sizeof(float)) {
      to.sums = to.y;
      to.ld_sums = to.ldy;
      to.add_sums = k > 0 || g_.beta != 0.0f;
    } else {
      to.sums = sums_;
      to.ld_sums = kBlockColumns;
      to.add_sums = k > 0;
      to.add_y = g_.beta != 0.0f;
    }
    return to;
  }

  const Gemm& g_;
  const PackedPlan& plan_;
  const float* bias_;
  const Lines<Element> a_, b_;
  Element* a_panels_;
  Element* b_panels_;
  float* sums_;
  alignas(64) Tile tile_;
  std::int64_t row_ = 0, rows_ = 0;
  std::int64_t values_ = 0, depth_ = 0;  // of this part of k
};

template <typename Element, typename Out>
void work(const Gemm& g, const PackedPlan& plan, const float* bias, std::byte* scratch,
          std::atomic<std::int64_t>& next) {
  Worker<Element, Out> worker(g, plan, bias, scratch);
  for (std::int64_t task; (task = next.fetch_add(1)) < plan.tasks();) worker.run(task);
}

void work_on(const Gemm& g, const PackedPlan& plan, const float* bias, std::byte* scratch,
             std::atomic<std::int64_t>& next) {
  const PackedTypes& types = plan.types;
  if (types.operands == DType::kFloat32) return work<float, float>(g, plan, bias, scratch, next);
  if (types.y == DType::kFloat32) return work<Bf16Pair, float>(g, plan, bias, scratch, next);
  work<Bf16Pair, bfloat16>(g, plan, bias, scratch, next);
}

#else

void work_on(const Gemm&, const PackedPlan&, const float*, std::byte*, std::atomic<std::int64_t>&) {
  throw InternalError("a packed product without AVX-512");
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(work_on);

}  // namespace

void packed_product(const Gemm& gemm, const PackedPlan& plan, const float* bias,
                    std::byte* scratch) {
  std::atomic<std::int64_t> next = 0;
  parallel_for({plan.workers}, plan.workers, 1, [&](std::int64_t begin, std::int64_t) {
    HWY_DYNAMIC_DISPATCH(work_on)
    (gemm, plan, bias, scratch + static_cast<std::size_t>(begin) * plan.worker_bytes(), next);
  });
}

}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
