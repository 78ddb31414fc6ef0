// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/sdpa_rule.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/attention/vector_rows.h"

namespace meshloom::kernels::cuda {
namespace {

constexpr std::int64_t kMostDims = 128;
constexpr std::int64_t kDimStep = 8;
// A token of generation has one query and one key more each time: a plan for each would be made.
constexpr std::int64_t kFewestQueries = 2;
constexpr const char* kNoLayout = "rows that are not dense and at multiples of 16 bytes";

// What no plan has; null where the call has none of it.
const char* extra_of(const AttentionOptions& options) {
  if (options.query_positions.defined() || options.key_positions.defined()) return "positions";
  if (options.query_documents.defined()) return "documents";
  if (options.bias.defined()) return "a bias";
  if (options.alibi_slopes.defined()) return "slopes";
  return options.dropout_p > 0.0f ? "dropout" : nullptr;
}

// Steps of 16 bytes between rows, heads and batch rows, none of them repeated.
std::optional<SdpaLayout> layout_of(const TensorView& view) {
  if (view.dtype != DType::kBFloat16 || view.ndim() != 4) return std::nullopt;
  if (!has_vector_rows(view)) return std::nullopt;
  for (int d = 0; d < 3; ++d)
    if (view.size(d) > 1 && view.stride(d) <= 0) return std::nullopt;
  // Strides of dims of size 1 say nothing, and must not make two plans of one.
  const std::int64_t row = view.size(2) > 1 ? view.stride(2) : view.size(3);
  const std::int64_t head = view.size(1) > 1 ? view.stride(1) : row * view.size(2);
  return SdpaLayout{view.size(0) > 1 ? view.stride(0) : head * view.size(1), head, row};
}

bool fits(std::int64_t dims) { return dims > 0 && dims <= kMostDims && dims % kDimStep == 0; }

// The diagonal is key - query = shift. False where the mask is another one, or hides all keys of a
// query.
bool choose_mask(SdpaShape& shape, const AttentionOptions& options) {
  const std::int64_t shift = options.query_offset - options.key_offset;
  const std::int64_t last_key = shape.keys - 1;
  std::int64_t right = options.is_causal ? 0 : options.window_right;
  std::int64_t left = options.window_left;
  // Limits that hide nothing are none.
  if (right >= 0 && shift + right >= last_key) right = -1;
  if (left >= 0 && shape.queries - 1 + shift - left <= 0) left = -1;
  if (right < 0 && left < 0) return true;
  if (right != 0) return false;
  if (shift == 0)
    shape.mask = SdpaMask::kCausalTopLeft;
  else if (shift == shape.keys - shape.queries && shift > 0)
    shape.mask = SdpaMask::kCausalBottomRight;
  else
    return false;
  if (left < 0) return true;
  // The last query's window must reach a key, and cuDNN's windows want no more queries than keys.
  shape.window_left = left;
  return shape.queries <= shape.keys;
}

// What of the inputs no plan is made for; null where there is nothing.
const char* inputs_refusal(const AttentionInputs& in, const AttentionOptions& options) {
  if (in.q.dtype != DType::kBFloat16) return "not bfloat16";
  if (const char* extra = extra_of(options)) return extra;
  if (in.q.numel() == 0 || in.k.numel() == 0) return "nothing to compute";
  if (!fits(in.q.size(3)) || !fits(in.v.size(3)))
    return "head dims that are no multiple of 8 up to 128";
  return in.q.size(2) < kFewestQueries ? "one query" : nullptr;
}

SdpaChoice common_choice(const AttentionInputs& in, const AttentionOptions& options) {
  if (const char* why = inputs_refusal(in, options)) return {std::nullopt, why};
  const auto q = layout_of(in.q), k = layout_of(in.k), v = layout_of(in.v);
  if (!q || !k || !v) return {std::nullopt, kNoLayout};
  SdpaShape shape;
  shape.batch = in.q.size(0);
  shape.heads = in.q.size(1);
  shape.kv_heads = in.k.size(1);
  shape.queries = in.q.size(2);
  shape.keys = in.k.size(2);
  shape.dims = in.q.size(3);
  shape.dims_v = in.v.size(3);
  if (!choose_mask(shape, options)) return {std::nullopt, "a mask of another form"};
  shape.scale = options.scale != 0.0 ? static_cast<float>(options.scale)
                                     : 1.0f / std::sqrt(static_cast<float>(shape.dims));
  shape.q = *q;
  shape.k = *k;
  shape.v = *v;
  return {shape, nullptr};
}

bool plain_numbers(const TensorView& lse) {
  return lse.dtype == DType::kFloat32 && lse.contiguous();
}

}  // namespace

SdpaChoice choose_sdpa(const AttentionOutputs& out, const AttentionInputs& in,
                       const AttentionOptions& options) {
  if (out.carry) return {std::nullopt, "carried on"};
  SdpaChoice choice = common_choice(in, options);
  if (!choice.shape) return choice;
  const auto o = layout_of(out.o);
  if (!o || !plain_numbers(out.lse)) return {std::nullopt, kNoLayout};
  choice.shape->o = *o;
  return choice;
}

SdpaChoice choose_sdpa(const AttentionGrads& grads, const AttentionInputs& in,
                       const AttentionOptions& options) {
  if (grads.accumulate) return {std::nullopt, "added to gradients"};
  if (grads.grad_bias.defined()) return {std::nullopt, "a bias"};
  if (!grads.o.defined()) return {std::nullopt, "o is not given"};
  SdpaChoice choice = common_choice(in, options);
  if (!choice.shape) return choice;
  SdpaShape& shape = *choice.shape;
  const auto o = layout_of(grads.o), grad_o = layout_of(grads.grad_o), dq = layout_of(grads.dq),
             dk = layout_of(grads.dk), dv = layout_of(grads.dv);
  if (!o || !grad_o || !dq || !dk || !dv || !plain_numbers(grads.lse))
    return {std::nullopt, kNoLayout};
  shape.backward = true;
  shape.o = *o;
  shape.grad_o = *grad_o;
  shape.dq = *dq;
  shape.dk = *dk;
  shape.dv = *dv;
  return choice;
}

}  // namespace meshloom::kernels::cuda
