// SPDX-License-Identifier: Apache-2.0
// What every trainable model offers: a loss, logits, and generation with a cache.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "daemon/nn/kv_cache.h"
#include "daemon/nn/models/model_config.h"
#include "daemon/nn/module.h"
#include "daemon/tensor/ops/loss.h"
#include "planner/attention/document_rows.h"
#include "planner/plan/activation_checkpoint.h"

namespace meshloom::nn {

/// Batch holds tokens of one micro batch on this rank. Undefined tensors mean "not given".
struct Batch {
  Tensor input_ids;            ///< int64 [B,S]
  Tensor labels;               ///< int64 [B,S], -100 is not counted; token_losses: or [B,S,K]
  bool labels_shifted = true;  ///< false: the label of position s is labels[s + 1] (causal models)
  Tensor attention_mask;       ///< int64 or bool [B,S], 0: a key nobody sees
  Tensor token_type_ids;       ///< int64 [B,S] (BERT alone)
  Tensor position_ids;         ///< int64 [B,S]
  Tensor document_ids;         ///< int64 [B,S]: attention stays inside a document
  Tensor label_weights;        ///< float32 [B,S] (weighted_loss alone)
  /// The rows say on the host what document_ids say; null: not known.
  std::shared_ptr<const planner::DocumentRows> document_rows = nullptr;
};

/// BatchInput lists the places of a batch's tensors among what the hooks of a model are given.
struct BatchInput {
  enum Place : std::size_t {
    kInputIds,
    kLabels,
    kAttentionMask,
    kTokenTypeIds,
    kPositionIds,
    kDocumentIds,
    kLabelWeights,
    kCount
  };
};

/// BatchDocuments names the documents that attention of a batch stays in.
struct BatchDocuments {
  Tensor ids;
  std::shared_ptr<const planner::DocumentRows> rows;
};

using planner::ActivationCheckpoint;

class OutputProjection;

struct ForwardOptions {
  bool training = false;  ///< dropout on
  std::uint64_t dropout_step =
      0;  ///< part of every dropout stream: one per optimizer step and micro batch
  std::uint64_t first_sample =
      0;  ///< global index of this batch's first row, for dropout by position
  ActivationCheckpoint activation_checkpoint = ActivationCheckpoint::kNone;
  /// By block, if blocks differ; empty: activation_checkpoint for all.
  std::vector<ActivationCheckpoint> block_checkpoints = {};

  ActivationCheckpoint checkpoint_of(std::size_t block) const {
    return block < block_checkpoints.size() ? block_checkpoints[block] : activation_checkpoint;
  }
};

/// The functions that take a batch run the model's own hooks around it (Module::add_hook), which
/// are given the batch's tensors in the order of BatchInput, then the results.
class Model : public Module {
 public:
  using Module::Module;
  virtual const ModelConfig& config() const = 0;

  /// Returns float32 [1]: sum of token losses * grad_scale, the output projection fused with the
  /// loss. While recording, backward with gradient 1 must follow.
  Tensor loss(const Batch& batch, float grad_scale, const ForwardOptions& options);
  /// Computes what loss() does with each token's loss times its label_weights in the sum; labels
  /// come shifted.
  ops::WeightedLoss weighted_loss(const Batch& batch, float grad_scale,
                                  const ForwardOptions& options);
  /// Returns float32, of labels' shape: -log p of each label, which come shifted
  /// (ops::linear_token_losses); the bits of weighted_loss's losses.
  Tensor token_losses(const Batch& batch, const ForwardOptions& options);
  /// Returns [B,S,V], compute dtype.
  Tensor logits(const Batch& batch, const ForwardOptions& options);

  /// Makes room for `max_length` positions of one sequence, at most the model's context, over the
  /// ranks of share_caches. Causal models only; BERT throws Unimplemented.
  virtual std::unique_ptr<KvCache> make_cache(std::int64_t max_length) = 0;
  /// Appends input_ids [1,S] to the cache and returns the logits of the last position [1,V],
  /// float32. Records no gradient. Throws InvalidArgument if the cache has no room for S more.
  Tensor decode(const Tensor& input_ids, KvCache& cache);
  /// Decodes, as with one cache, the next id of each of B sequences, input_ids [B,1], each with a
  /// cache of its own and at a position of its own. A row of the logits [B,V] has the bits that
  /// decoding its sequence alone gives. Throws InvalidArgument unless there is one cache for each
  /// row.
  Tensor decode(const Tensor& input_ids, KvCaches caches);

  /// The caches of make_cache share their positions over these ranks from now on, which decode
  /// together.
  void share_caches(const CacheRanks& ranks) { cache_ranks_ = ranks; }

  std::span<const std::string_view> input_names() const override;

 protected:
  const CacheRanks& cache_ranks() const { return cache_ranks_; }
  virtual Tensor compute_loss(const Batch& batch, float grad_scale,
                              const ForwardOptions& options) = 0;
  /// Returns the input of the output projection, [B,S,C], for a batch that was checked.
  virtual Tensor compute_hidden(const Batch& batch, const ForwardOptions& options) = 0;
  virtual const OutputProjection& output_projection() const = 0;
  virtual Tensor compute_decode(const Batch& batch, KvCaches caches) = 0;

 private:
  template <typename Forward>
  auto call_batch(const Batch& batch, Forward&& forward);

  CacheRanks cache_ranks_;
};

/// Makes the model with parameters in `dtype`, not initialised (nn::initialize_parameters, or
/// load_hf_weights).
std::unique_ptr<Model> make_model(ExecutionContext&, const ModelConfig&, DType dtype);

}  // namespace meshloom::nn
