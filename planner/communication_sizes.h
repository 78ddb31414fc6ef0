// SPDX-License-Identifier: Apache-2.0
// Sizes by which collectives and gradient buckets divide what they send. Those who send and those
// who estimate memory and traffic share them.
#pragma once

#include <cstdint>

namespace meshloom::planner {

/// Up to so many bytes every rank sends all of its data to all: one message time instead of two.
inline constexpr std::int64_t kOneShotBytes = 32 << 10;
/// A slice of one part of a reduction: large enough to pay for its messages, small enough to stay
/// in the second-level cache.
inline constexpr std::int64_t kReduceSliceBytes = 256 << 10;
/// Slices in flight: one is summed while the next ones travel.
inline constexpr std::int64_t kReduceSlicesInFlight = 4;
/// Gradients that data parallelism sums together, float32.
inline constexpr std::int64_t kGradientBucketBytes = 8 << 20;
/// Ranks show each other a card of so many bytes before a fused product, in front of its data in
/// their workspaces.
inline constexpr std::int64_t kFusedCardBytes = 4 << 10;

}  // namespace meshloom::planner
