// SPDX-License-Identifier: Apache-2.0
// What embedding and the cross entropies share if the vocabulary lies on several ranks.
//
// A rank holds some rows of the table (columns of the logits). Of every row of logits it knows its
// own logarithm of the sum of exponentials and, if the target is among its classes, the target's
// logit; ranks exchange these two numbers, and each has what it needs for its slice of the
// gradient. Source of the scheme: Shoeybi et al., "Megatron-LM", 2019, section 3.
#pragma once

#include <optional>

#include "daemon/tensor/local_call.h"
#include "kernels/options.h"

namespace meshloom::ops {

/// The place of a target that does not count, beside kernels::kOtherSlice.
inline constexpr std::int64_t kIgnoredClass = -2;

/// Returns the ids as places in the rank's part of the vocabulary, contiguous int64: kOtherSlice
/// where another rank holds one, `special_place` for the id `special`. Ids are in the vocabulary.
Tensor slice_places(const Tensor& ids, const planner::IndexRanges& slice,
                    std::optional<std::int64_t> special = std::nullopt,
                    std::int64_t special_place = kernels::kOtherSlice);

/// SliceExchange is the exchange between the ranks that hold slices of the classes: every one of
/// them makes one for the same call and begins as many exchanges, in the same order, for as many
/// rows.
class SliceExchange {
 public:
  /// Pending is one exchange in flight.
  class Pending {
   public:
    /// Waits for the exchange. The rows' lse is then that of all classes, and losses, which came as
    /// the slice's share, are whole; those of rows whose target is kIgnoredClass are 0.
    void finish();

   private:
    friend class SliceExchange;
    PendingTensorPtr stacked_;
    kernels::CrossEntropyRows rows_;  ///< without logits
  };

  /// Dim `class_dim` of input `input` of the call is this rank's slice. The call outlives this.
  SliceExchange(const LocalCall& call, int input, int class_dim);

  /// Returns the slice as kernels take it.
  kernels::ClassSlice slice() const { return {total_}; }
  /// Returns the number of classes of the widest slice: work is split by it, so that all ranks
  /// exchange equally often.
  std::int64_t widest() const { return widest_; }
  /// Sends losses and lse [rows] of the slice, float32 or float64 both; the views stay until
  /// finish(). One all_gather.
  Pending begin(const TensorView& losses, const TensorView& lse, const TensorView& targets) const;

 private:
  const LocalCall& call_;
  ExecutionContext& context_;
  std::int64_t total_, widest_;
};

/// ClassTargets holds targets as places among the classes that this rank holds, dense, and what
/// kernels need to know of them.
struct ClassTargets {
  Tensor places;
  kernels::CrossEntropyOptions options;
  std::optional<SliceExchange> exchange;  ///< if the rank holds a slice of the classes
};
/// Throws InvalidArgument naming op and value for a target outside [0, classes) that is not
/// `ignored`.
ClassTargets whole_targets(const char* op, const Tensor& targets, std::int64_t classes,
                           std::int64_t ignored);
/// Makes, and checks as whole_targets does, this rank's targets of the call, with dim `class_dim`
/// of input `input` as the classes. The call outlives the result.
ClassTargets slice_targets(const char* op, const LocalCall& call, const Tensor& targets, int input,
                           int class_dim, std::int64_t ignored);

}  // namespace meshloom::ops
