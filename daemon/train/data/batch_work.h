// SPDX-License-Identifier: Apache-2.0
// What a batch asks of a model: what tokens_per_second and mfu count.
#pragma once

#include <cstdint>

namespace meshloom::train {

/// BatchWork counts the work of all ranks together, and once what several of them compute.
struct BatchWork {
  std::int64_t tokens = 0;       ///< that are trained on: TokenBatch::tokens
  std::int64_t work_tokens = 0;  ///< that are no padding
  double attention_pairs = 0.0;  ///< of a query and a key that see each other (nn::attention_pairs)
  std::int64_t labels = 0;       ///< that count
  double bytes = 0.0;            ///< of text that these stand for; 0: not known
};

}  // namespace meshloom::train
