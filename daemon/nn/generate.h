// SPDX-License-Identifier: Apache-2.0
// Generating tokens with a causal model and its key-value cache.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "daemon/nn/models/model.h"
#include "daemon/nn/sample_token.h"
#include "daemon/tensor/deferred_checks.h"

namespace meshloom::nn {

struct GenerateOptions {
  SamplingOptions sampling;
  std::int64_t max_tokens = 256;
  /// Generation ends after one of these, or after any of these sequences of drawn tokens; as at an
  /// end of text after any of `end_tokens`, and after Model::config()'s eos ids if `stop_at_eos`.
  std::vector<std::int64_t> stop_tokens;
  std::vector<std::vector<std::int64_t>> stop_sequences;
  std::vector<std::int64_t> end_tokens;
  bool stop_at_eos = true;
  /// Goes on where the context is full, from the last half of it.
  bool past_context = false;
  bool log_probs =
      false;  ///< tells those of the tokens, which takes a pass over the vocabulary each
  /// Tokens at the end of the prompt that were drawn before, with the same seed: the next one is
  /// drawn as if this sample had drawn them.
  std::uint64_t drawn_before = 0;
};

/// The reason says why a sequence goes no further. An eos token counts before stop tokens, these
/// before stop sequences, all before the length, and that before a full context.
enum class FinishReason { kNone, kLength, kEos, kStopToken, kStopSequence, kContext };

/// Throws InvalidArgument for an empty prompt, a token outside the vocabulary, a prompt longer than
/// the context and options out of range.
void check_generate_arguments(const ModelConfig& config, std::span<const std::int64_t> prompt,
                              const GenerateOptions& options);

/// One sequence of a generation begins with this.
struct GenerateSequence {
  std::vector<std::int64_t> prompt;
  GenerateOptions options;
};

/// GeneratedToken is a token that a generation drew.
struct GeneratedToken {
  std::size_t sequence = 0;
  std::int64_t id = 0;
  FinishReason finish = FinishReason::kNone;  ///< of its sequence's last
  /// These are by token_log_prob: that of the model's own softmax, and that at the temperature that
  /// it was drawn with; 0 unless they were asked for.
  float log_prob = 0.0f, tempered_log_prob = 0.0f;

  bool last() const { return finish != FinishReason::kNone; }
};

/// Generation holds sequences with prompts of any lengths, drawn pass by pass. The tokens of a
/// sequence are those that it has alone, bit for bit, whichever others there are: prompts are fed
/// one at a time, in the passes that each takes alone, and only the next tokens of several
/// sequences share a pass (Model::decode). Equal arguments and weights give equal tokens, however
/// much time lies between the passes. If weights change in between, what was fed before keeps the
/// keys and values that it had.
///
/// A sequence ends with the token that the model draws after a full context: prompt and tokens are
/// one more than the context then, so that a prompt that fills it gets one token. With
/// `past_context` it goes on with the last half of the context fed anew as a prompt of its own
/// (positions start again at 0): output is unbounded while the model sees between half and all of
/// its context.
class Generation {
 public:
  /// Throws what check_generate_arguments throws; Unimplemented for BERT. `model` outlives it.
  Generation(Model& model, std::vector<GenerateSequence> sequences);

  /// Tells whether no token is left to draw.
  bool done() const { return left_ == 0; }
  /// Runs one pass of the model: kPassTokens of a prompt at the most (where ranks share them, as
  /// many more as KvCache::pass_positions says), or the next tokens of at most kPassRows sequences,
  /// which take turns, so that a pass is short. Returns what it drew, in order of the sequences:
  /// nothing after a part of a prompt. Waits for the device once. Not after done().
  std::vector<GeneratedToken> advance();
  /// Draws nothing more of this sequence, which is done now if it was not before.
  void end(std::size_t sequence);

  static constexpr std::int64_t kPassTokens = 128;
  /// A pass of so many rows reads the weights once (kernels/cpu/matmul/few_rows.h).
  static constexpr std::size_t kPassRows = 8;

 private:
  struct Sequence {
    GenerateOptions options;
    std::vector<std::int64_t> tokens;  ///< the prompt and what was drawn
    std::size_t fed = 0;               ///< of them
    std::int64_t drawn = 0;
    std::unique_ptr<KvCache> cache;  ///< null: every token was drawn

    std::size_t unfed() const { return tokens.size() - fed; }
  };

  /// Chooses the sequences of the next pass: one with more than a token to be fed, else all whose
  /// turn it is. What has filled its context and goes on is to be fed the last half of it anew.
  std::vector<std::size_t> next_pass();
  /// Runs the pass of the sequences `rows`. Returns the logits of their next tokens, [rows,
  /// vocabulary] in float32; none after a part of a prompt.
  HostValues run_pass(const std::vector<std::size_t>& rows);
  /// Draws the next token of each of the sequences `rows`, from their logits; not added yet.
  std::vector<GeneratedToken> sample_rows(const std::vector<std::size_t>& rows,
                                          std::span<const float> logits) const;
  FinishReason finish_of(const Sequence& sequence) const;

  Model& model_;
  std::vector<Sequence> sequences_;
  std::size_t left_ = 0;  ///< sequences that are not done
  std::size_t turn_ = 0;  ///< the sequence that is first to share a pass
};

}  // namespace meshloom::nn
