// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/packed_product.h"

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "kernels/base/error.h"
#include "kernels/base/integer_math.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/simd/matrix_tiles.h"
#include "kernels/cpu/simd/native_bfloat16.h"
#include "kernels/cpu/span_workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/packed_product.cpp"
#include <hwy/foreach_target.h>  // keep before highway.h
#include <hwy/highway.h>

#include "kernels/cpu/matmul/packed_panels.h"
#include "kernels/cpu/simd/register_products.h"
#include "kernels/cpu/simd/simd.h"

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

constexpr std::int64_t kLanes = kVectorShape.columns / 3;

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

// The sums of `rows` rows, `ld` apart, and `columns` columns, to where they go.
template <typename Out>
void store_sums(const float* sums, std::int64_t ld, const Target<Out>& to, std::int64_t rows,
                std::int64_t columns) {
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t column = 0; column < columns; column += kLanes) {
      const std::int64_t count = columns - column;
      float* former = to.sums + m * to.ld_sums + column;
      V value = hn::Load(F32(), sums + m * ld + column);
      if (to.add_sums) value = hn::Add(value, load_columns(former, count));
      if (!to.last) {
        store_columns(value, former, count);
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

// What a worker computes at a time, by multiply-adds of vectors: rows of a are read in panels of
// kRows, or where they lie.
template <typename ElementType>
class VectorUnit {
 public:
  using Element = ElementType;
  static constexpr PackedShape kShape = kVectorShape;

  static void pack_a(Element* to, const Lines<Element>& lines, std::int64_t count,
                     std::int64_t values, std::int64_t depth) {
    packed::pack_panels<Element, kRows>(to, lines, count, values, depth);
  }

  // The first of them (row_step 0) or a row where it lies, the next row_step further on.
  template <typename Out>
  void multiply(std::int64_t depth, const Element* a, std::int64_t row_step, const Element* b,
                const Target<Out>& to, std::int64_t rows, std::int64_t columns) {
    if (to.add_sums || !to.last) prefetch_tile(to.sums, to.ld_sums, rows, columns);
    if (to.last) prefetch_tile(to.y, to.ldy, rows, columns);
    if (row_step == 0)
      multiply_columns<true>(depth, a, row_step, b, columns);
    else
      multiply_columns<false>(depth, a, row_step, b, columns);
    store_sums(sums_, kShape.columns, to, rows, columns);
  }

 private:
  static constexpr int kRows = static_cast<int>(kShape.rows);

  template <bool kPanel>
  void multiply_columns(std::int64_t depth, const Element* a, std::int64_t row_step,
                        const Element* b, std::int64_t columns) {
    if (columns > 2 * kLanes) return multiply_vectors<3, kPanel>(depth, a, row_step, b);
    if (columns > kLanes) return multiply_vectors<2, kPanel>(depth, a, row_step, b);
    multiply_vectors<1, kPanel>(depth, a, row_step, b);
  }

  // kRows rows of a (one behind the other in a panel, or row_step apart where they lie) by kVectors
  // vectors of b's columns. It does nothing else, so that all sums stay in registers.
  template <int kVectors, bool kPanel>
  HWY_NOINLINE void multiply_vectors(std::int64_t depth, const Element* a, std::int64_t row_step,
                                     const Element* b) {
    V acc[kRows][kVectors];
    tile::clear(acc);
    if constexpr (kPanel)
      tile::multiply<kRows, kVectors, 1, kRows>(depth, a, b, kShape.columns, acc);
    else
      tile::multiply_rows<kRows, kVectors>(depth, a, row_step, b, kShape.columns, acc);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v)
        hn::Store(acc[m][v], F32(), sums_ + m * kShape.columns + v * kLanes);
  }

  alignas(64) float sums_[kShape.rows * kShape.columns];
};

// The same by tile registers. Sums of former parts of k are their first values.
template <typename Tiles>
class MatrixUnit {
 public:
  using Element = Bf16Pair;
  static constexpr PackedShape kShape = kMatrixShape;

  static void pack_a(Bf16Pair* to, const Lines<Bf16Pair>& lines, std::int64_t count,
                     std::int64_t values, std::int64_t depth) {
    packed::pack_tiles(to, lines, count, values, depth);
  }

  template <typename Out>
  void multiply(std::int64_t depth, const Bf16Pair* a, std::int64_t, const Bf16Pair* b,
                const Target<Out>& to, std::int64_t rows, std::int64_t columns) {
    const TileOperands in{depth,         a, kTileSide, kTileSide * kTileSide, kTileSide * depth, b,
                          kShape.columns};
    // Registers are loaded and stored whole.
    const bool whole = rows == kShape.rows && columns == kShape.columns;
    const bool as_it_is = !to.last || (std::is_same_v<Out, float> && to.bias == nullptr);
    const float* from = !to.add_sums ? nullptr : whole ? to.sums : former_sums(to, rows, columns);
    const std::int64_t ld_from = whole ? to.ld_sums : kShape.columns;
    if (whole && as_it_is)
      return multiply_tiles(tiles_, rows, columns, in, from, ld_from, to.sums, to.ld_sums);
    multiply_tiles(tiles_, rows, columns, in, from, ld_from, sums_, kShape.columns);
    Target<Out> rest = to;
    rest.add_sums = false;
    store_sums(sums_, kShape.columns, rest, rows, columns);
  }

 private:
  template <typename Out>
  const float* former_sums(const Target<Out>& to, std::int64_t rows, std::int64_t columns) {
    for (std::int64_t m = 0; m < rows; ++m)
      std::copy_n(to.sums + m * to.ld_sums, columns, sums_ + m * kShape.columns);
    return sums_;
  }

  Tiles tiles_;
  alignas(64) float sums_[kShape.rows * kShape.columns] = {};
};

// One worker's way through tiles of y.
template <typename Unit, typename Out>
class Worker {
 public:
  using Element = typename Unit::Element;

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
    const std::int64_t step = plan_.keeps_sums ? kShape.block_columns : end - begin;
    for (std::int64_t first = begin; first < end; first += step)
      for (std::int64_t k = 0; k < g_.k; k += plan_.part_depth)
        run_part(k, first, std::min(first + step, end));
  }

 private:
  static constexpr PackedShape kShape = Unit::kShape;
  static constexpr std::int64_t kRows = kShape.rows;

  // Values [k, k + part_depth) of all rows of the tile and these columns.
  void run_part(std::int64_t k, std::int64_t begin, std::int64_t end) {
    values_ = std::min(plan_.part_depth, g_.k - k);
    depth_ = round_up(elements_of<Element>(values_), kShape.least_depth);
    if (plan_.packs_a) pack_a(k);
    for (std::int64_t column = begin; column < end; column += kShape.block_columns)
      run_block(k, column, std::min(column + kShape.block_columns, end));
  }

  void pack_a(std::int64_t k) { Unit::pack_a(a_panels_, a_.at(row_, k), rows_, values_, depth_); }

  void run_block(std::int64_t k, std::int64_t begin, std::int64_t end) {
    packed::pack_panels<Element, static_cast<int>(kShape.columns)>(b_panels_, b_.at(begin, k),
                                                                   end - begin, values_, depth_);
    const Target<Out> to = target(k, begin);
    std::int64_t i = 0;
    for (; i + kRows <= rows_; i += kRows) {
      if (plan_.packs_a) {
        run_rows(a_panels_ + i * depth_, 0, to, i, kRows, end - begin);
      } else {
        const auto* rows = reinterpret_cast<const Element*>(a_.at(row_ + i, k).data);
        run_rows(rows, a_.ld / kPerElement<Element>, to, i, kRows, end - begin);
      }
    }
    if (i == rows_) return;
    Element* rest = plan_.packs_a ? a_panels_ + i * depth_ : a_panels_;
    if (!plan_.packs_a) Unit::pack_a(rest, a_.at(row_ + i, k), rows_ - i, values_, depth_);
    run_rows(rest, 0, to, i, rows_ - i, end - begin);
  }

  void run_rows(const Element* a, std::int64_t row_step, const Target<Out>& to, std::int64_t row,
                std::int64_t rows, std::int64_t columns) {
    for (std::int64_t j = 0; j < columns; j += kShape.columns)
      unit_.multiply(depth_, a, row_step, b_panels_ + j * depth_, to.at(row, j), rows,
                     std::min(kShape.columns, columns - j));
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
      to.ld_sums = kShape.block_columns;
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
  Unit unit_;
  std::int64_t row_ = 0, rows_ = 0;
  std::int64_t values_ = 0, depth_ = 0;  // of this part of k
};

template <typename Unit, typename Out>
void work(const Gemm& g, const PackedPlan& plan, const float* bias, std::byte* scratch,
          std::atomic<std::int64_t>& next) {
  Worker<Unit, Out> worker(g, plan, bias, scratch);
  for (std::int64_t task; (task = next.fetch_add(1)) < plan.tasks();) worker.run(task);
}

template <typename Unit>
void work_to(const Gemm& g, const PackedPlan& plan, const float* bias, std::byte* scratch,
             std::atomic<std::int64_t>& next) {
  if (plan.types.y == DType::kFloat32) return work<Unit, float>(g, plan, bias, scratch, next);
  work<Unit, bfloat16>(g, plan, bias, scratch, next);
}

void work_on(const Gemm& g, const PackedPlan& plan, const float* bias, std::byte* scratch,
             std::atomic<std::int64_t>& next) {
  const PackedTypes& types = plan.types;
  if (types.operands == DType::kFloat32)
    return work<VectorUnit<float>, float>(g, plan, bias, scratch, next);
  if (!types.tiles) return work_to<VectorUnit<Bf16Pair>>(g, plan, bias, scratch, next);
  if (tile_registers() != TileRegisters::kAmx)
    return work_to<MatrixUnit<ModelTiles>>(g, plan, bias, scratch, next);
  if (types.y == DType::kFloat32)
    return work<MatrixUnit<AmxTiles>, float>(g, plan, bias, scratch, next);
  // Sums of tiles come so fast that rounding them in integers would take as long.
  work<MatrixUnit<AmxTiles>, NativeBFloat16>(g, plan, bias, scratch, next);
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
