// SPDX-License-Identifier: Apache-2.0
// PositionRange: the positions of sequences that begin anywhere, without a copy in a forward.
#pragma once

#include <cstdint>

#include "daemon/tensor/tensor.h"

namespace meshloom::nn {

/// PositionRange holds 0, 1, 2, ... up to the context of a model, copied to the device once for all
/// its forwards. Used by one thread.
class PositionRange {
 public:
  PositionRange(ExecutionContext& context, std::int64_t context_length);

  /// Returns int64 [1,S] for input_ids [B,S]: start, start + 1, ..., a view. Sharded as the ids are
  /// if B is 1, else on every rank. start + S is at most the context.
  Tensor beside(const Tensor& input_ids, std::int64_t start) const;

 private:
  Tensor values_;  ///< int64 [context]
};

}  // namespace meshloom::nn
