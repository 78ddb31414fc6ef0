// SPDX-License-Identifier: Apache-2.0
// Attention by tiles of scores that stay on the chip, as plain data for launch functions. Source:
// Dao et al., "FlashAttention", NeurIPS 2022; Dao, "FlashAttention-2", 2023.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>

#include "kernels/base/dtype.h"
#include "kernels/base/philox.h"

namespace meshloom::kernels::cuda {

/// Head dims of q and v that the kernels take at most.
inline constexpr std::int64_t kMostHeadDims = 256;
/// Positions and documents have a span for so many queries, or keys.
inline constexpr int kSpanRows = 32;

/// Strides in elements by batch row, head, query or key, and last dim.
struct HeadStrides {
  std::int64_t batch = 0, head = 0, row = 0, last = 0;
};

/// A view [B, H, S, D]; `data` is null where it is not given.
struct HeadView {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  HeadStrides strides;
  std::int64_t dims = 0;
  /// Rows are dense, begin at multiples of 16 bytes and are whole numbers of 16 bytes long.
  bool vectors = false;
};

/// Tiles are chosen by the larger one of q's and v's head dims.
constexpr std::int64_t larger_dims(const HeadView& q, const HeadView& v) {
  return q.dims > v.dims ? q.dims : v.dims;
}

/// A float32 or float64 number for each query.
struct QueryNumbers {
  void* data = nullptr;
  bool wide = false;  ///< float64
  HeadStrides strides;
};

/// Smallest and largest of some positions, or of some documents.
struct Span {
  std::int64_t low = 0, high = 0;
};

/// AttentionOptions as plain data; addresses are null where they are not given.
struct ScoreRules {
  /// A key is seen where least <= key position - query position - query_offset <= most.
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  std::int64_t query_offset = 0, key_offset = 0;
  const std::int64_t* query_positions = nullptr;
  const std::int64_t* key_positions = nullptr;
  std::int64_t query_position_stride = 0, key_position_stride = 0;
  const std::int64_t* query_documents = nullptr;
  const std::int64_t* key_documents = nullptr;
  std::int64_t query_document_batch = 0, query_document_stride = 0;
  std::int64_t key_document_batch = 0, key_document_stride = 0;
  /// By launch_spans: one for each kSpanRows, of documents one batch row after the other. Those of
  /// positions are null where positions are counted up from an offset.
  const Span* query_spans = nullptr;
  const Span* key_spans = nullptr;
  const Span* query_document_spans = nullptr;
  const Span* key_document_spans = nullptr;
  const float* bias = nullptr;
  HeadStrides bias_strides;
  const float* slopes = nullptr;
  std::int64_t slope_stride = 0;
  float dropout_p = 0.0f;
  PhiloxStream random;
  std::int64_t first_head = 0, total_heads = 0, total_queries = 0, total_keys = 0;
};

struct FlashSizes {
  std::int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0;
};

struct FlashForward {
  FlashSizes sizes;
  ScoreRules rules;
  float scale = 0.0f;
  HeadView q, k, v, o;
  QueryNumbers lse;
  bool carry = false;  ///< merged into what o and lse hold
};

/// Gradients from the final lse and delta, written or added to what is there.
struct FlashBackward {
  FlashSizes sizes;
  ScoreRules rules;
  float scale = 0.0f;
  HeadView q, k, v, grad_o, dq, dk, dv;
  QueryNumbers lse, delta;
  bool accumulate = false;
  /// The bias's gradient is added to, by its own strides: 0 where the bias was broadcast.
  float* grad_bias = nullptr;
  HeadStrides grad_bias_strides;
};

/// spans[i] of ids[batch * batch_stride + row * row_stride] for `count` rows each.
struct SpansCall {
  Span* spans = nullptr;
  const std::int64_t* ids = nullptr;
  std::int64_t batch = 0, batch_stride = 0, count = 0, row_stride = 0;
};
void launch_spans(const SpansCall& call, cudaStream_t stream);

/// For bfloat16, by tensor cores. Products of probabilities and of scores' gradients take them
/// rounded to bfloat16; sums are in float32.
void launch_bfloat16_forward(const FlashForward& call, cudaStream_t stream);
void launch_bfloat16_backward(const FlashBackward& call, cudaStream_t stream);

/// For every floating dtype of 16 bits and more, in float32, or float64 for float64.
void launch_any_forward(const FlashForward& call, cudaStream_t stream);
void launch_any_backward(const FlashBackward& call, cudaStream_t stream);
/// grad_bias alone, of every dtype.
void launch_bias_gradient(const FlashBackward& call, cudaStream_t stream);

}  // namespace meshloom::kernels::cuda
