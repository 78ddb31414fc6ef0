// SPDX-License-Identifier: Apache-2.0
// The architecture of a model, read from and written as Hugging Face's config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/nn/models/rope_scaling.h"
#include "kernels/base/dtype.h"

namespace meshloom::nn {

enum class Architecture { kGpt2, kLlama, kGemma3, kBert };
/// DecoderFamily says whose config.json a decoder of Architecture::kLlama comes from. What is
/// computed differs in the switches of ModelConfig alone.
enum class DecoderFamily { kLlama, kMistral, kQwen2, kQwen3 };
enum class ActivationKind { kGelu, kGeluTanh, kSilu, kRelu };

/// UnreadKey is a key of a config.json that nothing reads: misspelt, or of a feature that is not
/// known.
struct UnreadKey {
  std::string name;
  std::string nearest;  ///< the name that may be meant; empty: none is near
};

struct ModelConfig {
  Architecture architecture = Architecture::kGpt2;
  DecoderFamily family = DecoderFamily::kLlama;  ///< kLlama
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;  ///< C
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;  ///< == num_heads unless GQA
  std::int64_t head_dim = 0;      ///< hidden_size / num_heads unless given
  std::int64_t intermediate_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t type_vocab_size = 0;  ///< BERT
  ActivationKind activation = ActivationKind::kGeluTanh;
  double norm_eps = 1e-5;
  double initializer_range = 0.02;
  bool tie_word_embeddings = true;
  // Switches of Architecture::kLlama and kGemma3.
  bool attention_bias = false;         ///< of the q, k and v projections
  bool attention_output_bias = false;  ///< of the o projection
  bool mlp_bias = false;
  bool qk_norm = false;  ///< RMS norms of each head's queries and keys, before the rotation
  /// A query of a windowed layer sees so many positions, its own included; 0: no layer has one.
  std::int64_t sliding_window = 0;
  std::vector<bool> windowed_layers;  ///< one each; empty: all, if sliding_window is not 0
  double rope_theta = 10000.0;
  // Switches of Architecture::kGemma3 alone.
  bool norms_around_one = false;            ///< RMS norms multiply by 1 + weight
  double local_rope_theta = 0.0;            ///< of windowed layers
  double query_scalar = 0.0;                ///< scores are divided by its root; 0: head_dim
  std::optional<RopeScaling> rope_scaling;  ///< none: "default"
  double embedding_dropout = 0.0;
  double attention_dropout = 0.0;
  double residual_dropout = 0.0;
  std::optional<std::int64_t> bos_token_id, eos_token_id, pad_token_id;
  /// If eos_token_id is a list: all but the first.
  std::vector<std::int64_t> more_eos_token_ids;
  // A reader of the config.json should know these; nothing that is computed depends on them.
  std::vector<UnreadKey> unread_keys;
  std::vector<std::string> notes;

  /// Returns whether a position sees itself and those before it alone, so that the model generates.
  bool is_causal() const;
  /// Returns the number of positions that the model is made for: max_position_embeddings, or what
  /// the scaling of its RoPE makes of it.
  std::int64_t context_length() const;
  /// Returns the longest sequence that is computed. Where RoPE is scaled its formulas go on behind
  /// the context.
  std::int64_t longest_sequence() const;
  /// Returns the window of a layer; 0: it sees all positions before.
  std::int64_t window_of(std::int64_t layer) const;
  std::int64_t windowed_layer_count() const;
};

/// Reads the text of a config.json as transformers 4 or 5 writes it. Throws InvalidArgument naming
/// the key for what is missing, wrong or not supported (an unsupported feature is never ignored).
/// Keys that are not known are in unread_keys.
ModelConfig parse_hf_config(const std::string& json);
/// Returns what is to be told where a model has weights, whose shapes speak: its notes, and which
/// keys of its config.json nothing reads.
std::vector<std::string> config_notes(const ModelConfig&);
/// Guards a model that is made of its config alone. Throws InvalidArgument naming the first of
/// unread_keys, and what may be meant.
void refuse_unread_keys(const ModelConfig&);
/// Returns a config.json that transformers 4 and 5 load. `dtype` is that of the weights beside it.
std::string to_hf_config(const ModelConfig&, DType dtype = DType::kFloat32);
/// Returns a generation_config.json with the special tokens.
std::string to_hf_generation_config(const ModelConfig&);

/// Returns the number of parameters in all, a tied weight once.
std::int64_t parameter_count(const ModelConfig&);
/// ModelFlops counts flops of forward and backward, attention apart from the rest.
struct ModelFlops {
  double per_token = 0.0;  ///< 6 N: N without look-up tables (positions, token types, an input
                           ///< embedding that the output does not share)
  double per_pair = 0.0;   ///< 12 L C: of a query and a key, in all layers
};
ModelFlops model_flops(const ModelConfig&);
/// Returns how many pairs of a query and a key see each other among `length` tokens that see
/// nothing else, mean over the layers. A token and itself are half a pair where keys behind it are
/// not seen: T^2 / 2, in a layer with a window W < T: T W - W^2 / 2. BERT: T^2.
double attention_pairs(const ModelConfig&, std::int64_t length);
/// Returns the flops of both parts per token of a sequence of one document: 6 N + 6 L C T (BERT: 12
/// L C T; a layer with a window W < T: 6 C (2 W - W^2 / T)).
double flops_per_token(const ModelConfig&, std::int64_t sequence_length);

}  // namespace meshloom::nn
