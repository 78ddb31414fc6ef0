// SPDX-License-Identifier: Apache-2.0
#include "planner/gradient_buckets.h"

#include "kernels/base/error.h"
#include "kernels/base/integer_math.h"

namespace meshloom::planner {

std::vector<GradientBucket> plan_gradient_buckets(std::span<const std::int64_t> sizes,
                                                  std::int64_t bucket_elements,
                                                  std::int64_t alignment) {
  check(bucket_elements >= 1 && alignment >= 1, "gradient buckets of {} elements, aligned to {}",
        bucket_elements, alignment);
  std::vector<GradientBucket> buckets;
  bool open = false;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    check(sizes[i] >= 0, "gradient buckets: parameter {} has {} elements", i, sizes[i]);
    if (!open) buckets.emplace_back();
    GradientBucket& bucket = buckets.back();
    const std::int64_t offset = round_up(bucket.size, alignment);
    bucket.slots.push_back({static_cast<int>(i), offset, sizes[i]});
    bucket.size = offset + sizes[i];
    open = bucket.size < bucket_elements;
  }
  return buckets;
}

}  // namespace meshloom::planner
