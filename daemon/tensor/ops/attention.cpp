// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/attention.h"

#include <algorithm>

#include "daemon/tensor/autograd/checkpoint.h"
#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/attention_part.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;

constexpr const char* kName = "scaled_dot_product_attention";

void check_shapes(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options) {
  const auto require = [&](bool fits, const char* what) {
    check(fits, "{}: {} q {}, k {}, v {}", kName, what, q.shape(), k.shape(), v.shape());
  };
  require(q.ndim() == 4 && k.ndim() == 4 && v.ndim() == 4, "expected 4 dims each, got");
  require(q.size(0) == k.size(0) && q.size(0) == v.size(0), "batch sizes differ:");
  require(q.size(3) == k.size(3), "head dims of q and k differ:");
  require(k.size(2) == v.size(2), "sequence lengths of k and v differ:");
  require(k.size(1) == v.size(1), "head counts of k and v differ:");
  if (options.enable_gqa)
    require(k.size(1) > 0 && q.size(1) % k.size(1) == 0,
            "the query head count must be a multiple of the kv head count:");
  else
    require(q.size(1) == k.size(1), "head counts differ without enable_gqa:");
}

void check_arguments(const Tensor& q, const Tensor& k, const Tensor& v,
                     const SdpaOptions& options) {
  check_floating(kName, q);
  check_same_dtype(kName, q, k);
  check_same_dtype(kName, q, v);
  check_shapes(q, k, v, options);
  check(options.dropout_p >= 0.0f && options.dropout_p < 1.0f,
        "{}: dropout_p is {}, expected [0, 1)", kName, options.dropout_p);
  check(options.window_left >= -1 && options.window_right >= -1,
        "{}: window [{}, {}], expected -1 or more", kName, options.window_left,
        options.window_right);
  if (options.bias) {
    check_floating(kName, options.bias);
    const Shape scores{q.size(0), q.size(1), q.size(2), k.size(2)};
    const Shape& shape = options.bias.shape();
    bool fits = shape.size() <= 4;
    for (int i = 1; fits && i <= shape.size(); ++i)
      fits = shape[shape.size() - i] == 1 || shape[shape.size() - i] == scores[4 - i];
    check(fits, "{}: bias of shape {} does not broadcast to {}", kName, shape, scores);
  }
  if (options.document_ids) {
    check_dtype(kName, "document_ids", options.document_ids, DType::kInt64);
    check(q.size(2) == k.size(2) && options.document_ids.shape() == Shape{q.size(0), q.size(2)},
          "{}: document_ids of shape {} for q {} and k {}", kName, options.document_ids.shape(),
          q.shape(), k.shape());
  }
}

/// One attention call: tensors the kernel reads and its options, with views of them.
struct Call {
  Tensor q, k, v;
  AttentionPart part;
  Tensor documents;  ///< contiguous
  Shape scores;
  kernels::AttentionOptions options;

  /// `place` by planner::AttentionDim: where q, k and v lie among those of all ranks.
  Call(const Tensor& q_given, const Tensor& k_given, const Tensor& v_given,
       const SdpaOptions& given, const Dims& place)
      : q(dense_rows(q_given)),
        k(dense_rows(k_given)),
        v(dense_rows(v_given)),
        part(q, given, place),
        scores{q.size(0), q.size(1), q.size(2), k.size(2)},
        options(part.options) {
    if (part.bias) options.bias = broadcast_view(part.bias, scores);
    if (given.document_ids) {
      documents = contiguous(given.document_ids);
      options.query_documents = documents.view();
      options.key_documents = documents.view();
    }
  }
  kernels::AttentionInputs inputs() const { return {q.view(), k.view(), v.view()}; }
};

/// Gradients of q, k and v. If the three are slices of one packed projection, so are the
/// gradients: then the backward of `split` finds them joined and copies nothing.
struct QkvGrads {
  Tensor dq, dk, dv;
};

QkvGrads make_grads(const Call& call) {
  const Tensor& q = call.q;
  const Strides& s = q.strides();
  const std::int64_t width = q.size(1) * q.size(3);
  const bool packed = q.storage() == call.k.storage() && q.storage() == call.v.storage() &&
                      q.shape() == call.k.shape() && q.shape() == call.v.shape() &&
                      s == call.k.strides() && s == call.v.strides() && s[1] == q.size(3) &&
                      s[2] == 3 * width && s[0] == q.size(2) * 3 * width &&
                      call.k.storage_offset() - q.storage_offset() == width &&
                      call.v.storage_offset() - q.storage_offset() == 2 * width;
  ExecutionContext& context = q.context();
  if (!packed)
    return {empty_heads(context, q.shape(), q.dtype()),
            empty_heads(context, call.k.shape(), q.dtype()),
            empty_heads(context, call.v.shape(), q.dtype())};
  const Tensor memory = empty(context, {q.size(0), q.size(2), 3 * width}, q.dtype());
  return {alias(memory, q.shape(), s), alias(memory, q.shape(), s, width),
          alias(memory, q.shape(), s, 2 * width)};
}

void sdpa_backward(const Call& call, const SdpaResult& result, const Tensor& bias_given,
                   const Tensor& dy, GradSink& sink) {
  const Tensor grad_o = dense_rows(dy);
  ExecutionContext& context = grad_o.context();
  const auto& kernel_context = context.kernel_context();
  QkvGrads d = make_grads(call);
  kernels::AttentionGrads grads{grad_o.view(),  result.lse.view(), {},    d.dq.view(),
                                d.dk.view(),    d.dv.view(),       false, {},
                                result.o.view()};
  Tensor dbias;
  if (bias_given && sink.wants(3)) {
    dbias = zeros(context, bias_given.shape(), DType::kFloat32);
    grads.grad_bias = broadcast_view(dbias, call.scores);
  }
  Tensor delta;
  if (context.backend().reads_attention_delta(grads, call.inputs(), call.options)) {
    delta = empty(context, result.lse.shape(), DType::kFloat32);
    grads.delta = delta.view();
    context.backend().attention_delta(kernel_context, grads.delta, grads.grad_o, grads.o);
  }
  context.backend().attention_backward(kernel_context, grads, call.inputs(), call.options);
  sink.emit(0, std::move(d.dq));
  sink.emit(1, std::move(d.dk));
  sink.emit(2, std::move(d.dv));
  if (dbias) sink.emit(3, converted(dbias, bias_given.dtype()));
}

SdpaResult run_sdpa(const Call& call) {
  ExecutionContext& context = call.q.context();
  autograd::CheckpointFrame* frame = context.checkpoint_frame();
  if (frame)
    if (auto kept = frame->replay_attention()) return {kept->o, kept->lse};
  const Tensor& q = call.q;
  SdpaResult result{
      empty_heads(context, {q.size(0), q.size(1), q.size(2), call.v.size(3)}, q.dtype()),
      empty(context, {q.size(0), q.size(1), q.size(2)}, DType::kFloat32)};
  context.backend().attention(context.kernel_context(), {result.o.view(), result.lse.view(), false},
                              call.inputs(), call.options);
  if (frame) frame->keep_attention(result.o, result.lse);
  return result;
}

SdpaResult attend(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options,
                  const Dims& place) {
  const Call call(q, k, v, options, place);
  SdpaResult result = run_sdpa(call);

  if (autograd::should_record({&q, &k, &v, &options.bias})) {
    const Tensor bias = options.bias ? options.bias.detach() : Tensor();
    Tensor o = alias(result.o, result.o.shape(), result.o.strides());
    autograd::record_op(kName, {&q, &k, &v, &options.bias}, {&o},
                        [call, result, bias](GradOutputs dy, GradSink& sink) {
                          sdpa_backward(call, result, bias, dy[0], sink);
                        });
    result.o = std::move(o);
  }
  return result;
}

/// This rank's heads and batch rows.
SdpaResult attend_part(const LocalCall& call, SdpaOptions options) {
  const Dims& place = call.attributes.dims;
  const Tensor& q = call.inputs[0];
  const Tensor k = heads_read(call.inputs[1], q.size(1), place);
  const Tensor v = heads_read(call.inputs[2], q.size(1), place);
  options.bias = call.inputs[3];
  options.document_ids = call.inputs[4];
  return attend(q, k, v, options, place);
}

}  // namespace

SdpaResult scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                        const SdpaOptions& options) {
  check_arguments(q, k, v, options);
  const Tensor* inputs[] = {&q, &k, &v, &options.bias, &options.document_ids};
  if (LayoutEngine* engine = layout_engine({inputs[0], inputs[1], inputs[2], inputs[3]})) {
    // What an activation checkpoint runs now it records when it runs it again.
    const bool records = autograd::should_record({&q, &k, &v, &options.bias}) ||
                         q.context().checkpoint_frame() != nullptr;
    std::vector<Tensor> results =
        engine->run(planner::OpId::kAttention, inputs, {{}, {records ? 0 : 1}}, OpOptions(options),
                    [&](const LocalCall& c) {
                      SdpaResult local = attend_part(c, options);
                      return std::vector<Tensor>{std::move(local.o), std::move(local.lse)};
                    });
    return {std::move(results[0]), std::move(results[1])};
  }
  return attend(
      q, k, v, options,
      {0, 0, 0, q.size(1), q.size(1) / std::max<std::int64_t>(1, k.size(1)), q.size(2), k.size(2)});
}

}  // namespace meshloom::ops
