// SPDX-License-Identifier: Apache-2.0
// Masks, biases, softmax and dropout on scores that lie in memory, forward and backward.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>

#include "kernels/base/dtype.h"
#include "kernels/base/philox.h"
#include "kernels/cuda/attention/score_piece.h"

namespace meshloom::kernels::cuda {

/// Strides in elements by batch row, query head, query and last dim.
struct QueryStrides {
  std::int64_t batch = 0, head = 0, query = 0, last = 0;
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
  const float* bias = nullptr;
  QueryStrides bias_strides;
  const float* slopes = nullptr;
  std::int64_t slope_stride = 0;
  const std::int64_t* query_documents = nullptr;
  const std::int64_t* key_documents = nullptr;
  std::int64_t query_document_batch = 0, query_document_stride = 0;
  std::int64_t key_document_batch = 0, key_document_stride = 0;
  float dropout_p = 0.0f;
  PhiloxStream random;
  std::int64_t first_head = 0, total_heads = 0, total_queries = 0, total_keys = 0;
};

/// A float32 or float64 number for each query.
struct QueryNumbers {
  void* data = nullptr;
  bool wide = false;  ///< float64
  QueryStrides strides;
};

/// Scores are of the compute type of `dtype` (float64 for float64, else float32). Softmax of a row
/// and its dropout go to `probabilities` of `dtype`, which may be the scores' memory if that is the
/// type of both; a row that sees nothing gets zeros and an lse of -inf.
struct MaskedSoftmax {
  ScorePiece piece;
  ScoreRules rules;
  DType dtype = DType::kFloat32;
  void* scores = nullptr;
  void* probabilities = nullptr;
  QueryNumbers lse;
  /// Not null: lse has what came before, which the rows of `carried` (scores' type, `dims_v` wide)
  /// are scaled down to, and probabilities are of both.
  void* carried = nullptr;
  QueryStrides carried_strides;
  std::int64_t dims_v = 0;
};

/// From scores, lse, delta and the gradients of the dropped probabilities (of scores' type):
/// `probabilities` get the dropped ones again, `score_gradients` those of the scores, both of
/// `dtype`. They may be the memory of `scores` and `gradients` if the types are equal. With
/// `keep_gradients` the scores' gradients go to `gradients` as well.
struct MaskedSoftmaxBackward {
  ScorePiece piece;
  ScoreRules rules;
  DType dtype = DType::kFloat32;
  void* scores = nullptr;
  void* gradients = nullptr;
  void* probabilities = nullptr;
  void* score_gradients = nullptr;
  bool keep_gradients = false;
  QueryNumbers lse, delta;
};

/// bias += the sum of the scores' gradients over all that an element was broadcast to (stride 0),
/// in their order.
struct BiasGradient {
  ScorePiece piece;
  const void* gradients = nullptr;  ///< float32, or float64
  bool wide = false;
  float* bias = nullptr;
  QueryStrides strides;
};

void launch_masked_softmax(const MaskedSoftmax& call, cudaStream_t stream);
void launch_masked_softmax_backward(const MaskedSoftmaxBackward& call, cudaStream_t stream);
void launch_bias_gradient(const BiasGradient& call, cudaStream_t stream);

}  // namespace meshloom::kernels::cuda
