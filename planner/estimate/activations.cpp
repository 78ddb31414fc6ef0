// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/activations.h"

#include <algorithm>

#include "kernels/base/integer_math.h"
#include "kernels/base/loss_pieces.h"

namespace meshloom::planner {
namespace {

/// Tensors of a layer, in elements.
struct LayerElements {
  std::int64_t kept = 0, forward = 0, backward = 0;
};

/// What the ops of a layer keep (daemon/tensor/ops): norms their input, attention q, k, v and its
/// output, GELU projections the pre-activation, SwiGLU both halves. Outputs of norms and of SwiGLU
/// are made again, but for those that a message gathered, which projections keep.
LayerElements layer_elements(const LocalModel& local) {
  const LayerSizes& s = local.pass.layer;
  const bool llama = local.model.kind == Architecture::kLlama;
  LayerElements e;
  e.kept = s.norms + s.attention + s.received + s.inner;
  // At the last projection: its input and output, the norms' outputs, attention's projection.
  e.forward = s.inner + (local.model.kind == Architecture::kGpt2 ? 4 : 3) * s.stream;
  // There too: the gradient of its output, of its input, and its input again.
  e.backward = 2 * s.inner + s.stream;
  if (local.model.activation == MlpActivation::kSilu) {
    e.kept += s.inner;
    // A plain SiLU keeps what GELU has in passing.
    if (!llama) {
      e.forward -= s.inner;
      e.backward -= s.inner;
    }
  }
  // SwiGLU's backward: three gradients as wide as the MLP.
  if (llama) e.backward = 3 * s.inner + s.stream;
  e.forward += s.in_passing;
  // A gradient that is summed over tp is there twice.
  e.backward += s.in_passing + s.weight_gradient;
  return e;
}

std::int64_t stream_bytes(const LocalModel& local) {
  return local.pass.layer.stream * local.element_bytes;
}

/// What selective checkpoints keep: attention's output.
std::int64_t attention_bytes(const LocalModel& local) {
  return local.pass.layer.queries * local.element_bytes + local.pass.layer.logsumexp * 4;
}

/// Tokens whose loss a rank computes.
std::int64_t loss_rows(const LocalModel& local) { return local.pass.hidden / local.model.hidden; }

/// As tensor/ops/output_loss takes memory, in bfloat16 on a CPU that has its products: chunks of
/// logits, two of them if the vocabulary is sharded and there are several, and gradients.
std::int64_t logits_bytes(const LocalModel& local) {
  constexpr std::int64_t kFloat = 4;
  const std::int64_t row = local.pass.vocab * kFloat;
  const auto chunks = [&](std::int64_t rows) {
    return (local.pass.vocab < local.model.vocab && rows < loss_rows(local) ? 2 : 1) * rows * row;
  };
  if (local.plan.dtype != DType::kBFloat16)
    return chunks(kernels::rows_per_piece(loss_rows(local), row, kernels::kLogitsBytes));
  const std::int64_t block =
      kernels::rows_per_piece(loss_rows(local), row / 2, kernels::kLogitGradientBytes);
  return block * (row / 2) +
         chunks(kernels::rows_per_piece(block, row, kernels::kPassingLogitsBytes));
}

std::int64_t peak_of(const LocalModel& local, const ActivationEstimate& a) {
  const std::int64_t layers = local.model.layers;
  const bool checkpointed = local.plan.checkpointing != ActivationCheckpoint::kNone;
  const std::int64_t stream = stream_bytes(local);
  const std::int64_t kept = layers * (checkpointed ? a.boundary : a.block);
  const std::int64_t in_loss = kept + a.ends + a.loss;
  // The last layer is at work: its own tensors are counted in `kept` unless it runs again.
  if (!checkpointed) return std::max({in_loss, kept + a.forward, kept + a.backward});
  // It runs again: forward with the gradient of its output waiting, then backward.
  std::int64_t again = kept + a.block + stream;
  if (local.plan.checkpointing == ActivationCheckpoint::kSelective) again -= attention_bytes(local);
  // The embeddings: of a causal model the first layer's one input, of BERT in a norm of their own.
  again += local.model.causal() ? -stream : stream;
  // In backward the layer's output is still there; its inputs are not, if norms keep them.
  const std::int64_t backward = a.backward + (local.model.causal() ? -stream : stream);
  return std::max(in_loss, again + std::max(a.forward, backward));
}

}  // namespace

ActivationEstimate estimate_activations(const LocalModel& local) {
  const LayerElements layer = layer_elements(local);
  ActivationEstimate a;
  // Means and deviations of the norms and attention's logsumexp, float32.
  const LayerSizes& sizes = local.pass.layer;
  const std::int64_t of_norm = local.model.kind == Architecture::kLlama ? 1 : 2;
  const std::int64_t statistics = (of_norm * sizes.norm_rows + sizes.logsumexp) * 4;
  a.block = layer.kept * local.element_bytes + statistics;
  // Of a checkpointed layer: its inputs (residual stream and what is added to it), and with
  // selective attention's output too.
  a.boundary = sizes.boundary * local.element_bytes;
  if (local.plan.checkpointing == ActivationCheckpoint::kSelective)
    a.boundary += attention_bytes(local);
  a.forward = layer.forward * local.element_bytes;
  a.backward = layer.backward * local.element_bytes;
  // Before the first layer and after the last: ids, the stream, and of BERT the embedding norm's
  // input, the transform's output and what its activation gives.
  const std::int64_t streams = local.model.kind == Architecture::kBert ? 3 : 1;
  a.ends = streams * stream_bytes(local) + 4 * local.rows * 8;
  // The last norm's output and its gradient. Losses and sums of exponentials of the rows, and
  // logits.
  const std::int64_t hidden = local.pass.hidden * local.element_bytes;
  a.loss = 2 * hidden + 2 * loss_rows(local) * 4 + logits_bytes(local);
  a.peak = peak_of(local, a);
  return a;
}

}  // namespace meshloom::planner
