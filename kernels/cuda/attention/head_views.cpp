// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/head_views.h"

#include <cmath>

#include "kernels/cuda/attention/vector_rows.h"
#include "kernels/cuda/runtime/check.h"

namespace meshloom::kernels::cuda {
namespace {

template <class T>
const T* data_of(const TensorView& view) {
  return view.defined() ? view.as<T>() : nullptr;
}

void place_rules(ScoreRules& rules, const AttentionOptions& options) {
  if (options.window_left >= 0) rules.least = -options.window_left;
  if (options.window_right >= 0) rules.most = options.window_right;
  if (options.is_causal) rules.most = 0;
  rules.query_offset = options.query_offset;
  rules.key_offset = options.key_offset;
  rules.query_positions = data_of<std::int64_t>(options.query_positions);
  rules.key_positions = data_of<std::int64_t>(options.key_positions);
  if (rules.query_positions != nullptr)
    rules.query_position_stride = options.query_positions.stride(0);
  if (rules.key_positions != nullptr) rules.key_position_stride = options.key_positions.stride(0);
  rules.query_documents = data_of<std::int64_t>(options.query_documents);
  rules.key_documents = data_of<std::int64_t>(options.key_documents);
  if (rules.query_documents == nullptr) return;
  rules.query_document_batch = options.query_documents.stride(0);
  rules.query_document_stride = options.query_documents.stride(1);
  rules.key_document_batch = options.key_documents.stride(0);
  rules.key_document_stride = options.key_documents.stride(1);
}

}  // namespace

HeadStrides head_strides(const TensorView& view) {
  return {view.stride(0), view.stride(1), view.stride(2), view.ndim() > 3 ? view.stride(3) : 0};
}

HeadView head_view(const TensorView& view) {
  return {view.data, view.dtype, head_strides(view), view.size(3), has_vector_rows(view)};
}

QueryNumbers query_numbers(const TensorView& view) {
  return {view.data, view.dtype == DType::kFloat64, head_strides(view)};
}

float scale_of(const AttentionInputs& in, double scale) {
  return static_cast<float>(scale != 0.0 ? scale
                                         : 1.0 / std::sqrt(static_cast<double>(in.q.size(3))));
}

ScoreRules score_rules(const AttentionInputs& in, const AttentionOptions& options) {
  ScoreRules rules;
  place_rules(rules, options);
  if (options.bias.defined()) {
    if (options.bias.dtype != DType::kFloat32)
      not_built(fmt::format("attention with a bias of {}", dtype_name(options.bias.dtype)));
    rules.bias = options.bias.as<float>();
    rules.bias_strides = head_strides(options.bias);
  }
  if (options.alibi_slopes.defined()) {
    rules.slopes = options.alibi_slopes.as<float>();
    rules.slope_stride = options.alibi_slopes.stride(0);
  }
  rules.dropout_p = options.dropout_p;
  rules.random = options.dropout_random;
  rules.first_head = options.dropout_first_head;
  rules.total_heads = options.dropout_total_heads > 0 ? options.dropout_total_heads : in.q.size(1);
  rules.total_queries = options.dropout_total_queries;
  rules.total_keys = options.dropout_total_keys;
  return rules;
}

void check_heads(const AttentionInputs& in) {
  if (in.q.dtype == DType::kFloat8E4M3 || in.q.dtype == DType::kFloat8E5M2)
    not_built(fmt::format("attention of {}", dtype_name(in.q.dtype)));
  for (const TensorView* view : {&in.q, &in.v})
    if (view->size(3) > kMostHeadDims)
      not_built(fmt::format("attention with heads of {} dims, more than {},", view->size(3),
                            kMostHeadDims));
}

void check_numbers(const TensorView& view, const char* what) {
  if (view.dtype != DType::kFloat32 && view.dtype != DType::kFloat64)
    not_built(fmt::format("attention with {} of {}", what, dtype_name(view.dtype)));
}

}  // namespace meshloom::kernels::cuda
