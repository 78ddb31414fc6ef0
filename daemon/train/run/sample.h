// SPDX-License-Identifier: Apache-2.0
// Sequences that are drawn bit by bit.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "daemon/train/config/sample_start.h"
#include "v1/step.pb.h"

namespace meshloom::train {

/// SampledToken is one token of a sample.
struct SampledToken {
  std::size_t sequence = 0;  ///< index in what the sample began with
  std::int64_t id = 0;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;  ///< of its sequence's last
  /// Under the model's own softmax over all tokens, and under that at the temperature it was drawn
  /// with (equal at 1; 0 at temperature 0). Both 0 unless the sequence began with log_probs.
  float log_prob = 0.0f, tempered_log_prob = 0.0f;

  bool last() const { return finish != v1::FINISH_REASON_UNSPECIFIED; }
};

/// Sample is one or several sequences that are drawn bit by bit, each as it would be alone. Ends
/// before the run or Sampler that it came from.
class Sample {
 public:
  virtual ~Sample() = default;
  /// Draws for as long as `budget`, at least one pass of the model. Returns the tokens on rank 0,
  /// those of a sequence in their order; nothing on others and once all are drawn.
  virtual std::vector<SampledToken> advance(std::chrono::milliseconds budget) = 0;
  /// Nothing more is drawn of these sequences, by index, some of which may have ended before.
  virtual void end_sequences(const std::vector<std::size_t>& sequences) = 0;
  /// Tells on rank 0 whether no token is left to draw.
  virtual bool done() const = 0;
};

/// RunSample is a sample of a run.
class RunSample : public Sample {
 public:
  /// Returns how many optimizer steps are behind the weights that the next advance() draws from.
  virtual std::int64_t step() const = 0;
  /// Returns what Run::forward returns of a batch whose data all ranks have, under the weights that
  /// were drawn from. Throws FailedPrecondition (WEIGHTS_STALE) if these were the run's own and
  /// were overwritten since.
  virtual v1::LossOutput score(const v1::LossBatch&) = 0;
};

}  // namespace meshloom::train
