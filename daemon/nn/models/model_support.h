// SPDX-License-Identifier: Apache-2.0
// Small pieces that the models share.
#pragma once

#include <functional>

#include "daemon/nn/dropout.h"
#include "daemon/nn/models/model.h"
#include "daemon/nn/modules/activation.h"
#include "daemon/nn/modules/linear.h"
#include "daemon/nn/modules/output_projection.h"
#include "daemon/tensor/ops/attention.h"
#include "daemon/tensor/ops/norm.h"

namespace meshloom::nn {

/// Throws InvalidArgument unless input_ids is int64 [B,S] with 0 < S <= context and everything else
/// that is given has its shape.
void check_batch(const Batch& batch, std::int64_t context_length);
/// Returns the label of each position: labels moved one to the left, the last -100, unless they
/// come shifted.
Tensor next_token_labels(const Batch& batch);

/// Returns the positions of input_ids [B,1] behind what several caches hold: int64 [B,1].
Tensor cached_positions(const Tensor& input_ids, KvCaches caches);
/// Returns float32 [B,1,1,S] to add to attention scores: 0, and -inf for keys whose mask is 0, so
/// that a query that sees no other gets 0. Undefined if there is no mask.
Tensor mask_bias(const Tensor& attention_mask);
/// Turns [B,S,H*D] into [B,S,H,D], a view.
Tensor split_features(const Tensor& x, std::int64_t heads);
/// Turns [B,S,H,D] into [B,H,S,D], a view.
Tensor heads_first(const Tensor& x);
/// Turns [B,S,H*D] into [B,H,S,D], a view.
Tensor split_heads(const Tensor& x, std::int64_t heads);
/// Turns [B,H,S,D] into [B,S,H*D].
Tensor merge_heads(const Tensor& x);

/// Returns the output projection that a causal model's config describes.
OutputProjection::Options projection_options(const ModelConfig& config, const Embedding& embedding);

/// Applies an activation and then the layer; GELU is computed again in backward instead of being
/// kept.
Tensor activated_linear(const Linear& linear, const Tensor& x, ActivationKind activation);

DropoutState dropout_state(const ExecutionContext& context, const ForwardOptions& options);
/// Returns the attention options that come from dropout and documents; [B,H,S,D] has `heads` heads.
ops::SdpaOptions attention_options(const DropoutState& dropout, double p, std::int64_t layer,
                                   std::int64_t heads, const BatchDocuments& documents);

/// Returns the kind of memory that keys and values of x [B,S,C] are to be made in: if its sequence
/// lies on several ranks, where these can read them. Caches copy them into memory of their own.
MemoryKind memory_of_keys(const Tensor& x, KvCaches caches = {});

/// Computes attention of queries [B,Hq,S,D] over keys and values [B,Hkv,S,D], [B,Hq,S,D]. With
/// caches these are appended to layer `layer` of the cache of each row, and its queries see all
/// that it holds (and that `options` lets them see). Several rows take one query each, and a row's
/// result is that of its sequence alone.
Tensor cached_attention(const Tensor& q, const KvCache::KeyValue& next, KvCaches caches,
                        std::int64_t layer, ops::SdpaOptions options);

/// ResidualStream is the residual stream between pre-norm sublayers: its value is x + residual,
/// added by the next norm. x is undefined at the start.
struct ResidualStream {
  Tensor x;
  Tensor residual;
};
using Block = std::function<ResidualStream(const ResidualStream&)>;
/// Runs a block, keeping for backward what `mode` says. What the block captures must outlive
/// backward.
ResidualStream run_block(const Block& block, const ResidualStream& stream,
                         ActivationCheckpoint mode);

}  // namespace meshloom::nn
