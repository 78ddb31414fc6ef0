// SPDX-License-Identifier: Apache-2.0
// What embedding and the cross entropies share where the vocabulary lies on several ranks.
//
// A rank holds some rows of the table (columns of the logits). Of every row of logits it knows its
// own logarithm of the sum of exponentials and, if the target is among its classes, the target's
// logit; ranks exchange these two numbers, and each has what it needs for its slice of the
// gradient. Source of the scheme: Shoeybi et al., "Megatron-LM", 2019, section 3.
#pragma once

#include <optional>

#include "daemon/tensor/layout.h"
#include "kernels/options.h"

namespace meshloom::ops {

/// How targets and ids are written for kernels: places in the rank's slice.
inline constexpr std::int64_t kOtherSlice = -1;
inline constexpr std::int64_t kIgnoredClass = -2;

/// The same ids as places in the rank's part of the vocabulary, contiguous int64: kOtherSlice where
/// another rank holds one, kIgnoredClass for `ignored`. Throws InvalidArgument naming op and value
/// outside [0, vocabulary).
Tensor slice_places(const char* op, const char* what, const Tensor& ids,
                    const planner::IndexRanges& slice, std::int64_t vocabulary,
                    std::optional<std::int64_t> ignored);

/// What kernels need to know where dim `class_dim` of input `input` of the call is the rank's
/// slice. Every rank of the mesh dims that cut it calls `combine` as often, for as many rows.
kernels::ClassSlice class_slice(const LocalCall& call, int input, int class_dim);

}  // namespace meshloom::ops
