// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/masked_lm.h"

#include <algorithm>

#include "daemon/train/data/dataset.h"
#include "kernels/base/philox.h"

namespace meshloom::train {
namespace {

/// Apart from the streams of initialisation, shuffling and dropout.
constexpr std::uint64_t kStream = 0x6d61736b65646c6dull;

bool may_be_chosen(const MaskedLmOptions& options, std::int64_t label) {
  return label != kIgnoredLabel &&
         std::find(options.special_tokens.begin(), options.special_tokens.end(), label) ==
             options.special_tokens.end();
}

std::int64_t shown_instead(const MaskedLmOptions& options, const PhiloxBlock& random,
                           std::int64_t token) {
  const double kind = philox_uniform(random[1]);
  if (kind < options.mask_share) return options.mask_token;
  if (kind >= options.mask_share + options.random_share) return token;
  const auto vocabulary = static_cast<std::uint64_t>(options.vocab_size);
  return static_cast<std::int64_t>(random[2] * vocabulary >> 32);
}

}  // namespace

std::int64_t mask_sample(const MaskedLmOptions& options, std::uint64_t seed, std::int64_t place,
                         std::span<std::int64_t> inputs, std::span<std::int64_t> labels) {
  const PhiloxStream stream{seed, kStream};
  const auto first = static_cast<std::uint64_t>(place) * labels.size();
  std::size_t fallback = labels.size();  // the position that was nearest to being chosen
  float nearest = 2.0f;
  for (std::size_t s = 0; s < labels.size(); ++s) {
    const float draw = philox_uniform(stream.block(first + s)[0]);
    if (!may_be_chosen(options, labels[s]) || draw >= nearest) continue;
    fallback = s;
    nearest = draw;
  }
  std::int64_t chosen = 0;
  for (std::size_t s = 0; s < labels.size(); ++s) {
    const PhiloxBlock random = stream.block(first + s);
    const bool wanted = s == fallback || (philox_uniform(random[0]) < options.probability &&
                                          may_be_chosen(options, labels[s]));
    if (wanted) {
      inputs[s] = shown_instead(options, random, labels[s]);
      ++chosen;
    } else {
      labels[s] = kIgnoredLabel;
    }
  }
  return chosen;
}

}  // namespace meshloom::train
