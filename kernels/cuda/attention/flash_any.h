// SPDX-License-Identifier: Apache-2.0
// Tiles of queries, keys and scores as the kernels for every dtype hold them: rows in shared
// memory, converted to the type that is computed in; a block's threads stand kDown by kAcross.
#pragma once

#include "kernels/cuda/attention/score_rules.h"
#include "kernels/cuda/primitives/any_element.h"
#include "kernels/cuda/primitives/grid.h"
#include "kernels/cuda/primitives/reductions.h"
#include "kernels/cuda/primitives/vectors.h"

namespace meshloom::kernels::cuda {

/// C: float or double. A thread has kThreadRows rows of a tile; head dims are at most kMost.
template <class C, int kThreadRows, int kMost>
struct AnyTiles {
  using Value = C;
  static constexpr int kThreads = 128;
  static constexpr int kAcross = 16;
  static constexpr int kDown = kThreads / kAcross;
  static constexpr int kRows = kThreadRows;
  static constexpr int kTile = kDown * kRows;                       ///< queries, and keys
  static constexpr int kColumns = (kTile + kAcross - 1) / kAcross;  ///< scores of a thread's row
  static constexpr int kStep = kVectorElements<C>;
  static constexpr int kStride = kMost + kStep;              ///< of rows in shared memory
  static constexpr int kSlices = kMost / (kAcross * kStep);  ///< vectors of a thread's row
  static constexpr int kScoreStride = kTile + 1;
  static constexpr std::size_t kRowBytes = sizeof(C) * kTile * kStride;
  static constexpr std::size_t kScoreBytes = sizeof(C) * kTile * kScoreStride;

  /// A thread's part of sums [kTile, head dims].
  struct Sums {
    C at[kRows][kSlices][kStep];
  };
  /// A thread's part of scores [kTile, kTile].
  struct Scores {
    C at[kRows][kColumns];
  };

  static __device__ __forceinline__ int across() { return threadIdx.x % kAcross; }
  static __device__ __forceinline__ int first_row() { return threadIdx.x / kAcross * kRows; }
  static __device__ __forceinline__ int column(int i) { return across() + i * kAcross; }
  static __device__ __forceinline__ int padded(std::int64_t dims) {
    return static_cast<int>((dims + kStep - 1) / kStep) * kStep;
  }

  /// Rows of a head; zeros behind the last row and dim.
  static __device__ __forceinline__ void load(C* to, const HeadView& view, std::int64_t batch,
                                              std::int64_t head, const TileRows& rows) {
    const std::int64_t base =
        batch * view.strides.batch + head * view.strides.head + rows.first * view.strides.row;
    const int width = padded(view.dims);
#pragma unroll 1
    for (int row = threadIdx.x / kAcross; row < kTile; row += kDown)
#pragma unroll 1
      for (int d = across(); d < width; d += kAcross)
        to[row * kStride + d] =
            row < rows.count && d < view.dims
                ? load_any<C>(view.dtype, view.data,
                              base + row * view.strides.row + d * view.strides.last)
                : C(0);
  }

  /// scores = a b^T over `width` dims.
  static __device__ __forceinline__ void products(Scores& scores, const C* a, const C* b,
                                                  int width) {
    scores = {};
    for (int d = 0; d < width; d += kStep) {
      Vector<C> x[kRows], y[kColumns];
#pragma unroll
      for (int r = 0; r < kRows; ++r) x[r] = load_vector(a + (first_row() + r) * kStride + d);
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        y[c] = load_vector(b + (column(c) < kTile ? column(c) : 0) * kStride + d);
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
#pragma unroll
          for (int i = 0; i < kStep; ++i) scores.at[r][c] += x[r][i] * y[c][i];
    }
  }

  static __device__ __forceinline__ void store_scores(C* to, const Scores& scores) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        if (column(c) < kTile) to[(first_row() + r) * kScoreStride + column(c)] = scores.at[r][c];
  }

  /// sums[row] += the sum over `count` of weights[row * row_step + i * step] * rows[i].
  static __device__ __forceinline__ void add_products(Sums& sums, const C* weights, int row_step,
                                                      int step, const C* rows, int count,
                                                      int width) {
    for (int i = 0; i < count; ++i) {
      C weight[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) weight[r] = weights[(first_row() + r) * row_step + i * step];
#pragma unroll
      for (int s = 0; s < kSlices; ++s) {
        const int d = (s * kAcross + across()) * kStep;
        if (d >= width) break;
        const Vector<C> x = load_vector(rows + i * kStride + d);
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int j = 0; j < kStep; ++j) sums.at[r][s][j] += weight[r] * x[j];
      }
    }
  }

  /// Puts a thread's sums, row r of them times factors[r], into its rows of a tile in shared
  /// memory: zeros where the factor is 0, whatever the sums are.
  static __device__ __forceinline__ void store_sums(C* to, const Sums& sums,
                                                    const C (&factors)[kRows]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int s = 0; s < kSlices; ++s) {
        Vector<C> x;
#pragma unroll
        for (int j = 0; j < kStep; ++j)
          x[j] = factors[r] == C(0) ? C(0) : sums.at[r][s][j] * factors[r];
        store_vector(to + (first_row() + r) * kStride + (s * kAcross + across()) * kStep, x);
      }
  }

  /// Calls body(row of the tile, dim, sum) for a thread's part of what its half of a warp has
  /// stored of `rows` rows. The body stands there once, since it is long.
  template <class Body>
  static __device__ __forceinline__ void for_stored(const C* from, int rows, std::int64_t dims,
                                                    Body&& body) {
    const int end = first_row() + kRows < rows ? first_row() + kRows : rows;
#pragma unroll 1
    for (int row = first_row(); row < end; ++row)
#pragma unroll 1
      for (int d = across(); d < dims; d += kAcross) body(row, d, from[row * kStride + d]);
  }
};

/// Over the threads that have a row of scores, each of which gets it.
template <class C, class Op>
__device__ __forceinline__ C reduce_across(C value, Op op) {
  for (int offset = 8; offset > 0; offset /= 2)
    value = op(value, __shfl_xor_sync(kWholeWarp, value, offset));
  return value;
}

/// Calls body(tiles) with the tiles that heads of `dims` take; all shared memory of them stays
/// below 99 KiB.
template <class Body>
void for_any_tiles(DType dtype, std::int64_t dims, Body&& body) {
  if (dtype == DType::kFloat64) return body(AnyTiles<double, 1, 256>{});
  if (dims <= 128) return body(AnyTiles<float, 4, 128>{});
  body(AnyTiles<float, 2, 256>{});
}

}  // namespace meshloom::kernels::cuda
