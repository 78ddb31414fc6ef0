// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/activations.h"

#include <algorithm>

#include "kernels/base/integer_math.h"
#include "kernels/base/loss_pieces.h"

namespace meshloom::planner {
namespace {

/// Tensors of a layer by their width, in elements per token; what is of the residual stream apart,
/// since sequence parallelism shards its tokens.
struct Widths {
  std::int64_t local = 0;   ///< for every token of the micro batch
  std::int64_t stream = 0;  ///< for the tokens of the residual stream that are here
};

struct LayerWidths {
  Widths kept, forward, backward;
};

/// With sequence parallelism the inputs of the column-wise projections, the norms' outputs gathered
/// over tokens, are kept.
void shard_stream(const LocalModel& local, LayerWidths& w) {
  const std::int64_t c = local.model.hidden;
  w.kept.local += 2 * c;
  w.forward.local += c;
  w.backward.local += c;
}

/// What the ops of a layer keep (daemon/tensor/ops): norms their input, attention q, k, v and its
/// output, GELU projections the pre-activation, SwiGLU both halves. Outputs of norms and of SwiGLU
/// are made again.
LayerWidths layer_widths(const LocalModel& local) {
  const std::int64_t c = local.model.hidden;
  LayerWidths w;
  w.kept = {local.q + 2 * local.kv + local.q, 2 * c};
  if (local.whole_kv) {
    // Attention takes the heads that this rank's queries use.
    const std::int64_t shared = local.model.heads / local.model.kv_heads;
    w.kept.local += 2 * divide_up(local.heads, shared) * local.model.head_dim;
  }
  // At the last projection: its input and output, the norms' outputs, attention's projection.
  w.forward = {local.inner, local.model.kind == ModelKind::kGpt2 ? 4 * c : 3 * c};
  // There too: the gradient of its output, of its input, and its input again.
  w.backward = {2 * local.inner, c};
  switch (local.model.activation) {
    case MlpActivation::kGelu: w.kept.local += local.inner; break;
    case MlpActivation::kRelu: w.kept.local += local.inner; break;
    case MlpActivation::kSilu:
      w.kept.local += 2 * local.inner;
      // A plain SiLU keeps what GELU has in passing.
      if (local.model.kind != ModelKind::kLlama) {
        w.forward.local = 0;
        w.backward.local = local.inner;
      }
      break;
  }
  // SwiGLU's backward: three gradients as wide as the MLP.
  if (local.model.kind == ModelKind::kLlama) w.backward.local = 3 * local.inner;
  if (local.plan.sequence_parallel) shard_stream(local, w);
  return w;
}

std::int64_t bytes_of(const LocalModel& local, const Widths& widths) {
  return (widths.local * local.rows + widths.stream * local.stream_rows) * local.element_bytes;
}

/// Means and deviations of the norms and attention's logsumexp, float32.
std::int64_t statistics(const LocalModel& local) {
  const std::int64_t norms = local.model.kind == ModelKind::kLlama ? 2 : 4;
  return (norms * local.stream_rows + local.heads * local.rows) * 4;
}

/// Before the first layer and after the last.
std::int64_t end_bytes(const LocalModel& local) {
  const std::int64_t c = local.model.hidden;
  const std::int64_t stream = local.stream_rows * c * local.element_bytes;
  const std::int64_t ids = 4 * local.rows * 8;
  // BERT: the embedding norm's input, the transform's output and what its activation gives.
  if (local.model.kind == ModelKind::kBert) return 3 * stream + ids;
  return stream + ids;
}

/// Of a checkpointed layer: its inputs (residual stream and what is added to it), and with
/// selective attention's output too.
std::int64_t boundary_bytes(const LocalModel& local) {
  const std::int64_t inputs = local.model.kind == ModelKind::kBert ? 1 : 2;
  std::int64_t bytes = inputs * local.model.hidden * local.stream_rows * local.element_bytes;
  if (local.plan.checkpointing == Checkpointing::kSelective)
    bytes += local.rows * (local.q * local.element_bytes + local.heads * 4);
  return bytes;
}

/// As tensor/ops/output_loss takes memory, in bfloat16 on a CPU that has its products: chunks of
/// logits, two of them if the vocabulary is sharded and there are several, and gradients.
std::int64_t logits_bytes(const LocalModel& local) {
  constexpr std::int64_t kFloat = 4;
  const std::int64_t row = local.vocab * kFloat;
  const auto chunks = [&](std::int64_t rows) {
    return (local.mesh.tp > 1 && rows < local.rows ? 2 : 1) * rows * row;
  };
  if (local.plan.dtype != DType::kBFloat16)
    return chunks(kernels::rows_per_piece(local.rows, row, kernels::kLogitsBytes));
  const std::int64_t block =
      kernels::rows_per_piece(local.rows, row / 2, kernels::kLogitGradientBytes);
  return block * (row / 2) +
         chunks(kernels::rows_per_piece(block, row, kernels::kPassingLogitsBytes));
}

std::int64_t peak_of(const LocalModel& local, const ActivationEstimate& a) {
  const std::int64_t layers = local.model.layers;
  const bool checkpointed = local.plan.checkpointing != Checkpointing::kNone;
  const std::int64_t stream = local.model.hidden * local.stream_rows * local.element_bytes;
  const std::int64_t kept = layers * (checkpointed ? a.boundary : a.block);
  const std::int64_t in_loss = kept + a.ends + a.loss;
  // The last layer is at work: its own tensors are counted in `kept` unless it runs again.
  if (!checkpointed) return std::max({in_loss, kept + a.forward, kept + a.backward});
  // It runs again: forward with the gradient of its output waiting, then backward.
  std::int64_t again = kept + a.block + stream;
  if (local.plan.checkpointing == Checkpointing::kSelective)
    again -= local.rows * (local.q * local.element_bytes + local.heads * 4);
  // The embeddings: of a causal model the first layer's one input, of BERT in a norm of their own.
  again += local.model.causal() ? -stream : stream;
  // In backward the layer's output is still there; its inputs are not, where norms keep them.
  const std::int64_t backward = a.backward + (local.model.causal() ? -stream : stream);
  return std::max(in_loss, again + std::max(a.forward, backward));
}

}  // namespace

ActivationEstimate estimate_activations(const LocalModel& local) {
  const LayerWidths widths = layer_widths(local);
  ActivationEstimate a;
  a.block = bytes_of(local, widths.kept) + statistics(local);
  a.boundary = boundary_bytes(local);
  a.forward = bytes_of(local, widths.forward);
  a.backward = bytes_of(local, widths.backward);
  a.ends = end_bytes(local);
  // The last norm's output and its gradient; with tp the rows of the stream are gathered. Losses
  // and sums of exponentials of the rows, and logits.
  const std::int64_t hidden = local.model.hidden * local.rows * local.element_bytes;
  a.loss = 2 * hidden + 2 * local.rows * 4 + logits_bytes(local);
  a.peak = peak_of(local, a);
  return a;
}

}  // namespace meshloom::planner
