// SPDX-License-Identifier: Apache-2.0
// Which gradients travel together: parameters packed into buckets in the order backward finishes
// them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace meshloom::planner {

/// BucketSlot is a parameter's place in a bucket, in elements.
struct BucketSlot {
  int parameter = 0;  ///< index into the sizes that were given
  std::int64_t offset = 0;
  std::int64_t size = 0;
};

struct GradientBucket {
  std::vector<BucketSlot> slots;
  std::int64_t size = 0;  ///< elements, gaps for alignment included
};

/// Packs parameters with `sizes` elements from last to first (the order in which backward finishes
/// them) into buckets of about `bucket_elements`: a bucket is closed by the parameter that fills
/// it, so a parameter larger than a bucket has one that it ends. Each slot begins at a multiple of
/// `alignment` elements. Every parameter is in exactly one bucket; buckets come in the order in
/// which they fill.
std::vector<GradientBucket> plan_gradient_buckets(std::span<const std::int64_t> sizes,
                                                  std::int64_t bucket_elements,
                                                  std::int64_t alignment = 16);

}  // namespace meshloom::planner
