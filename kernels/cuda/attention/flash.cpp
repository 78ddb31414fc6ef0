// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/flash.h"

#include "kernels/base/integer_math.h"
#include "kernels/cuda/attention/head_views.h"
#include "kernels/cuda/host_views.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/scratch.h"

namespace meshloom::kernels::cuda {
namespace {

DType compute_dtype(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

FlashSizes flash_sizes(const AttentionInputs& in) {
  return {in.q.size(0), in.q.size(1), in.k.size(1), in.q.size(2), in.k.size(2)};
}

// Finds the spans of the ids that are given, in the workspace, and writes their addresses to the
// rules.
void make_spans(const KernelContext& context, ScoreRules& rules, const FlashSizes& sizes) {
  struct Table {
    const Span** spans;
    SpansCall call;
  };
  const Table tables[] = {
      {&rules.query_spans,
       {nullptr, rules.query_positions, 1, 0, sizes.queries, rules.query_position_stride}},
      {&rules.key_spans,
       {nullptr, rules.key_positions, 1, 0, sizes.keys, rules.key_position_stride}},
      {&rules.query_document_spans,
       {nullptr, rules.query_documents, sizes.batch, rules.query_document_batch, sizes.queries,
        rules.query_document_stride}},
      {&rules.key_document_spans,
       {nullptr, rules.key_documents, sizes.batch, rules.key_document_batch, sizes.keys,
        rules.key_document_stride}}};
  const auto bytes = [](const SpansCall& call) {
    return static_cast<std::size_t>(call.batch * divide_up<std::int64_t>(call.count, kSpanRows)) *
           sizeof(Span);
  };
  std::size_t all = 0;
  for (const Table& table : tables)
    if (table.call.ids != nullptr) all += scratch_piece(bytes(table.call));
  if (all == 0) return;
  ScratchCutter cutter(reserve_scratch(context, all, "attention").data());
  for (Table table : tables) {
    if (table.call.ids == nullptr) continue;
    table.call.spans = static_cast<Span*>(cutter.take(bytes(table.call)));
    *table.spans = table.call.spans;
    launch_spans(table.call, stream_of(context));
  }
}

}  // namespace

void flash_attention(const KernelContext& context, AttentionCode code, const AttentionOutputs& out,
                     const AttentionInputs& in, const AttentionOptions& options) {
  check_heads(in);
  check_numbers(out.lse, "lse");
  if (out.carry && out.o.dtype != compute_dtype(in.q.dtype))
    not_built(fmt::format("attention of {} carried on in {}", dtype_name(in.q.dtype),
                          dtype_name(out.o.dtype)));
  FlashForward call;
  call.sizes = flash_sizes(in);
  call.rules = score_rules(in, options);
  call.scale = scale_of(in, options.scale);
  call.q = head_view(in.q);
  call.k = head_view(in.k);
  call.v = head_view(in.v);
  call.o = head_view(out.o);
  call.lse = query_numbers(out.lse);
  call.carry = out.carry;
  make_spans(context, call.rules, call.sizes);
  if (code == AttentionCode::kBfloat16)
    launch_bfloat16_forward(call, stream_of(context));
  else
    launch_any_forward(call, stream_of(context));
}

void flash_attention_backward(const KernelContext& context, AttentionCode code,
                              const AttentionGrads& grads, const AttentionInputs& in,
                              const AttentionOptions& options) {
  check_heads(in);
  check_numbers(grads.lse, "lse");
  check_numbers(grads.delta, "delta");
  if (grads.grad_bias.defined() && grads.grad_bias.dtype != DType::kFloat32)
    not_built(
        fmt::format("attention with a bias's gradient of {}", dtype_name(grads.grad_bias.dtype)));
  FlashBackward call;
  call.sizes = flash_sizes(in);
  call.rules = score_rules(in, options);
  call.scale = scale_of(in, options.scale);
  call.q = head_view(in.q);
  call.k = head_view(in.k);
  call.v = head_view(in.v);
  call.grad_o = head_view(grads.grad_o);
  call.dq = head_view(grads.dq);
  call.dk = head_view(grads.dk);
  call.dv = head_view(grads.dv);
  call.lse = query_numbers(grads.lse);
  call.delta = query_numbers(grads.delta);
  call.accumulate = grads.accumulate;
  make_spans(context, call.rules, call.sizes);
  if (code == AttentionCode::kBfloat16)
    launch_bfloat16_backward(call, stream_of(context));
  else
    launch_any_backward(call, stream_of(context));
  if (!grads.grad_bias.defined()) return;
  call.grad_bias = grads.grad_bias.as<float>();
  call.grad_bias_strides = head_strides(grads.grad_bias);
  launch_bias_gradient(call, stream_of(context));
}

}  // namespace meshloom::kernels::cuda
