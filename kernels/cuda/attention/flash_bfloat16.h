// SPDX-License-Identifier: Apache-2.0
// Tiles of bfloat16 in shared memory and products of them by tensor cores. A warp has 16 rows of
// scores, as fragments c of 8 columns each (primitives/tensor_core.h says which lane has what).
#pragma once

#include "kernels/cuda/attention/score_rules.h"
#include "kernels/cuda/primitives/any_element.h"
#include "kernels/cuda/primitives/async_copy.h"
#include "kernels/cuda/primitives/grid.h"
#include "kernels/cuda/primitives/reductions.h"
#include "kernels/cuda/primitives/tensor_core.h"
#include "kernels/cuda/primitives/vectors.h"

namespace meshloom::kernels::cuda {

/// Head dims are at most kMost. Rows lie kStride elements apart: eight rows in a column of 16 bytes
/// are in eight different groups of banks.
template <int kMost>
struct Bfloat16Tiles {
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kDims = kMost;
  static constexpr int kStride = kMost + 8;
  static constexpr int kWarpRows = 16;
  static constexpr int kRows = kWarps * kWarpRows;  ///< of the tile that a block keeps

  static __device__ __forceinline__ int warp_row() { return threadIdx.x / kWarp * kWarpRows; }
  /// The first of the two rows of its warp's 16 that a lane has scores of; the other is 8 below.
  static __device__ __forceinline__ int lane_row() { return threadIdx.x % kWarp / 4; }
  /// Row i, of two, in the tile that the block keeps.
  static __device__ __forceinline__ int row(int i) { return warp_row() + lane_row() + i * 8; }
  /// The first of the two columns that a lane has of each fragment.
  static __device__ __forceinline__ int lane_column() { return threadIdx.x % 4 * 2; }

  /// Begins to load kCount rows of a head, zeros behind the last row and dim. The caller waits for
  /// its copies and meets the block before it reads.
  template <int kCount>
  static __device__ __forceinline__ void load(__nv_bfloat16* to, const HeadView& view,
                                              std::int64_t batch, std::int64_t head,
                                              const TileRows& rows) {
    const auto* from = static_cast<const __nv_bfloat16*>(view.data) + batch * view.strides.batch +
                       head * view.strides.head + rows.first * view.strides.row;
    if (view.vectors) {
      constexpr int kPieces = kMost / 8;  // of 16 bytes in a row
      for (int at = threadIdx.x; at < kCount * kPieces; at += kThreads) {
        const int row = at / kPieces, d = at % kPieces * 8;
        const bool wanted = row < rows.count && d < view.dims;
        begin_copy(to + row * kStride + d, wanted ? from + row * view.strides.row + d : from,
                   wanted);
      }
      return;
    }
    for (int at = threadIdx.x; at < kCount * kMost; at += kThreads) {
      const int row = at / kMost, d = at % kMost;
      to[row * kStride + d] = row < rows.count && d < view.dims
                                  ? from[row * view.strides.row + d * view.strides.last]
                                  : __float2bfloat16_rn(0.0f);
    }
  }

  /// scores = a b^T over `dims`: a is the warp's 16 rows, b kTiles * 8 rows. kTiles is even.
  template <int kTiles>
  static __device__ __forceinline__ void products(float (&scores)[kTiles][4],
                                                  const __nv_bfloat16* a, const __nv_bfloat16* b,
                                                  int dims) {
    const int lane = threadIdx.x % kWarp;
    const __nv_bfloat16* a_row = a + lane % 16 * kStride + lane / 16 * 8;
    const __nv_bfloat16* b_row = b + (lane / 16 * 8 + lane % 8) * kStride + lane / 8 % 2 * 8;
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
      for (int i = 0; i < 4; ++i) scores[n][i] = 0.0f;
#pragma unroll
    for (int d = 0; d < kMost; d += 16) {
      if (d >= dims) break;
      unsigned x[4];
      load_matrices(x, a_row + d);
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        unsigned y[4];
        load_matrices(y, b_row + n * 8 * kStride + d);
        multiply_add(scores[n], x, y[0], y[1]);
        multiply_add(scores[n + 1], x, y[2], y[3]);
      }
    }
  }

  /// sums += weights b: weights [16 x kTiles * 8] rounded to bfloat16, b [kTiles * 8 rows,
  /// columns], of which sums has kParts * 8 from b's first column on; those behind `dims` are left
  /// out.
  template <int kTiles, int kParts>
  static __device__ __forceinline__ void add_products(float (&sums)[kParts][4],
                                                      const float (&weights)[kTiles][4],
                                                      const __nv_bfloat16* b, int dims) {
    const int lane = threadIdx.x % kWarp;
    const __nv_bfloat16* b_row = b + lane % 16 * kStride + lane / 16 * 8;
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      const unsigned x[4] = {pack_bfloat16(weights[n][0], weights[n][1]),
                             pack_bfloat16(weights[n][2], weights[n][3]),
                             pack_bfloat16(weights[n + 1][0], weights[n + 1][1]),
                             pack_bfloat16(weights[n + 1][2], weights[n + 1][3])};
#pragma unroll
      for (int part = 0; part < kParts; part += 2) {
        if (part * 8 >= dims) break;
        unsigned y[4];
        load_transposed_matrices(y, b_row + n * 8 * kStride + part * 8);
        multiply_add(sums[part], x, y[0], y[1]);
        multiply_add(sums[part + 1], x, y[2], y[3]);
      }
    }
  }

  /// Writes the warp's rows: factors[i] of rows lane_row() and the one 8 below, before[i] times
  /// what is there, from dim `first` on. They go by way of `stage`, the block's shared memory for
  /// tiles, so that lanes write neighbours and the conversion stands there once. All copies have
  /// come.
  template <int kParts>
  static __device__ __forceinline__ void write(const HeadView& to, __nv_bfloat16* stage,
                                               std::int64_t batch, std::int64_t head,
                                               const TileRows& rows, const float (&sums)[kParts][4],
                                               const float (&factors)[2], const float (&before)[2],
                                               int first) {
    float* const mine = reinterpret_cast<float*>(stage) + warp_row() * kStride;
    __syncthreads();  // tiles may still be read
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        Vector<float, 2> pair;
#pragma unroll
        for (int j = 0; j < 2; ++j)
          pair[j] = factors[i] == 0.0f ? 0.0f : sums[part][2 * i + j] * factors[i];
        *reinterpret_cast<Vector<float, 2>*>(mine + (lane_row() + i * 8) * kStride + part * 8 +
                                             lane_column()) = pair;
      }
    __syncwarp();
    const int lane = threadIdx.x % kWarp;
    const std::int64_t left = to.dims - first;
    const int count = left < kParts * 8 ? static_cast<int>(left) : kParts * 8;
#pragma unroll 1
    for (int row = 0; row < kWarpRows; ++row) {
      // Lanes of a row hold the same.
      const float kept = __shfl_sync(kWholeWarp, row < 8 ? before[0] : before[1], row % 8 * 4);
      if (warp_row() + row >= rows.count) continue;
      const std::int64_t base = batch * to.strides.batch + head * to.strides.head +
                                (rows.first + warp_row() + row) * to.strides.row;
#pragma unroll 1
      for (int d = lane; d < count; d += kWarp)
        write_element(to, base + (first + d) * to.strides.last, mine[row * kStride + d], kept);
    }
  }

 private:
  static __device__ __forceinline__ void write_element(const HeadView& to, std::int64_t at,
                                                       float value, float kept) {
    if (to.dtype == DType::kBFloat16) {
      auto* element = static_cast<__nv_bfloat16*>(to.data) + at;
      if (kept != 0.0f) value += kept * __bfloat162float(*element);
      *element = __float2bfloat16_rn(value);
    } else {
      float* element = static_cast<float*>(to.data) + at;
      if (kept != 0.0f) value += kept * *element;
      *element = value;
    }
  }
};

/// Calls body(IntTag) with the head dims that a kernel is made for.
template <class Body>
void for_head_dims(std::int64_t dims, Body&& body) {
  if (dims <= 64) return body(std::integral_constant<int, 64>{});
  if (dims <= 128) return body(std::integral_constant<int, 128>{});
  body(std::integral_constant<int, 256>{});
}

}  // namespace meshloom::kernels::cuda
