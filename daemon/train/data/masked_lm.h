// SPDX-License-Identifier: Apache-2.0
// Masked language modelling: which tokens of a sample are hidden and are to be found again.
//
// Source: Devlin, Chang, Lee, Toutanova, "BERT: Pre-training of Deep Bidirectional Transformers",
// 2019, section 3.1; masks are drawn anew in every epoch, as in Liu et al., "RoBERTa", 2019.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace meshloom::train {

struct MaskedLmOptions {
  std::int64_t vocab_size = 0;
  std::int64_t mask_token = 0;
  double probability = 0.15;  ///< of a position to be chosen
  double mask_share = 0.8;    ///< of chosen positions: become mask_token
  double random_share = 0.1;  ///< become any token of the vocabulary; the rest stays as it is
  std::vector<std::int64_t> special_tokens = {};  ///< never chosen
};

/// Hides tokens of one sample: `inputs` and `labels` [T] hold the tokens, and kIgnoredLabel in
/// `labels` where there is only padding. Labels that were not chosen become kIgnoredLabel. A sample
/// with a token that may be chosen has at least one that is. Everything is drawn by (seed, place,
/// position), so it is the same on every mesh and after a restart; `place` is that of the sample in
/// the whole training. Returns the number of labels that count.
std::int64_t mask_sample(const MaskedLmOptions& options, std::uint64_t seed, std::int64_t place,
                         std::span<std::int64_t> inputs, std::span<std::int64_t> labels);

}  // namespace meshloom::train
