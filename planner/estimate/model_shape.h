// SPDX-License-Identifier: Apache-2.0
// ModelShape: what an estimate has to know of a Transformer, and the parameters that follow from
// it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/shape.h"

namespace meshloom::planner {

enum class ModelKind { kGpt2, kLlama, kBert };
/// What backward keeps of the MLP: GELU is applied inside the projection behind it, the others are
/// ops of their own.
enum class MlpActivation { kGelu, kRelu, kSilu };

/// A plain value; sizes as in Hugging Face's config.json. GPT-2 and BERT have layer norms with bias
/// and biases everywhere, Llama RMS norms, rotary positions and a gated MLP.
struct ModelShape {
  ModelKind kind = ModelKind::kGpt2;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate = 0;
  std::int64_t vocab = 0;
  std::int64_t positions = 0;
  std::int64_t token_types = 0;  ///< BERT
  bool tied = true;
  bool attention_bias = false;  ///< Llama
  bool mlp_bias = false;        ///< Llama
  MlpActivation activation = MlpActivation::kGelu;
  bool embedding_dropout = false;  ///< whether the rate is above 0
  bool residual_dropout = false;

  std::int64_t q_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
  bool causal() const { return kind != ModelKind::kBert; }
};

/// Throws InvalidArgument naming the size that is not positive or does not fit another.
void check_model_shape(const ModelShape& model);

/// How tensor parallelism shards a parameter: as DimOrder::blocked does. dim -1: not at all.
struct TensorSharding {
  int dim = -1;
  int groups = 1;
  std::int64_t unit = 1;
  /// So many units stay together (query heads of a key-value head) where every rank gets some.
  std::int64_t bundle = 1;
  /// Where there are fewer units than ranks, every rank holds all (key-value heads).
  bool whole_where_few = false;
};

/// What becomes of a sharding of `size` elements among `parts` ranks: bundles are units then, or
/// units stay alone; whole_where_few is left where that came true.
TensorSharding settle(const TensorSharding& sharding, std::int64_t size, std::int64_t parts);

struct ParameterShape {
  std::string name;  ///< Hugging Face's; of a block, behind "PREFIX.LAYER."
  Shape shape;
  TensorSharding sharding;
};

/// All parameters in the order in which the model registers them: `before`, then `block` once per
/// layer, then `after`. A tied weight is there once.
struct ModelParameters {
  std::string block_prefix;  ///< "transformer.h"
  std::vector<ParameterShape> before, block, after;
};

/// Shardings are those of the model's default plan: attention by heads (of kv groups), MLP by
/// columns, vocabulary by rows.
ModelParameters model_parameters(const ModelShape& model);
std::int64_t parameter_count(const ModelShape& model);

/// Elements that part `index` of `parts` holds of a dim of `size` (as DimOrder::blocked).
std::int64_t shard_size(std::int64_t size, const TensorSharding& sharding, std::int64_t parts,
                        std::int64_t index);
/// What tp rank `index` of `parts` holds; the whole shape where the parameter is not sharded.
Shape tensor_parallel_shape(const ParameterShape& parameter, std::int64_t parts,
                            std::int64_t index);

}  // namespace meshloom::planner
