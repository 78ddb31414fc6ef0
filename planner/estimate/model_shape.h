// SPDX-License-Identifier: Apache-2.0
// ModelShape: what an estimate has to know of a Transformer, and the modules that follow from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/plan/architecture.h"
#include "planner/plan/module_shape.h"

namespace meshloom::planner {

/// What backward keeps of the MLP: GELU is applied inside the projection behind it, the others are
/// ops of their own.
enum class MlpActivation { kGelu, kRelu, kSilu };

/// A plain value; sizes as in Hugging Face's config.json. GPT-2 and BERT have layer norms with bias
/// and biases everywhere, Llama RMS norms, rotary positions and a gated MLP.
struct ModelShape {
  Architecture kind = Architecture::kGpt2;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate = 0;
  std::int64_t vocab = 0;
  std::int64_t positions = 0;         ///< of the context
  std::int64_t longest_sequence = 0;  ///< that is computed, if more than those; 0: no more
  std::int64_t token_types = 0;       ///< BERT
  bool tied = true;
  // Switches of Llama and the decoders like it.
  bool attention_bias = false;         ///< of the q, k and v projections
  bool attention_output_bias = false;  ///< of the o projection
  bool mlp_bias = false;
  bool qk_norm = false;              ///< norms of each head's queries and keys
  std::int64_t window = 0;           ///< positions that a query of a windowed layer sees
  std::int64_t windowed_layers = 0;  ///< how many of the layers have it
  MlpActivation activation = MlpActivation::kGelu;
  bool embedding_dropout = false;  ///< whether the rate is above 0
  bool residual_dropout = false;

  std::int64_t q_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
  bool causal() const { return kind != Architecture::kBert; }
};

/// Positions that a query sees in a sequence of so many tokens, the mean over queries and layers:
/// all, of a causal model half of them, fewer where layers have windows.
double seen_positions(const ModelShape& model, std::int64_t sequence);

/// Throws InvalidArgument naming the size that is not positive or does not fit another.
void check_model_shape(const ModelShape& model);

/// All modules in the order in which the model registers their parameters: `before`, then `block`
/// once per layer, then `after`. The model itself is none of them. A weight that is tied is a
/// parameter of the embedding alone.
struct ModelModules {
  std::string block_prefix;  ///< "transformer.h"
  /// Modules of `block` have the names that stand behind "PREFIX.LAYER."; "" is the block itself.
  std::vector<ModuleShape> before, block, after;
};

/// What styles have to know of the modules: the sizes of their parameters, and the units (heads,
/// heads of a key-value head) that are never sharded.
ModelModules model_modules(const ModelShape& model);

/// Returns the full name of a module of layer `layer`, or of one outside the layers if that is
/// negative.
std::string full_name(const ModelModules& modules, const std::string& module, std::int64_t layer);

/// The names of all parameters of all layers, in order.
std::vector<std::string> parameter_names(const ModelShape& model);
std::int64_t parameter_count(const ModelShape& model);

}  // namespace meshloom::planner
