// SPDX-License-Identifier: Apache-2.0
// Ids of tokens and classes: calls of Backend on CUDA.
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_views.h"
#include "kernels/cuda/ids_launch.h"
#include "kernels/cuda/scratch.h"

namespace meshloom::kernels::cuda {

void CudaBackend::slice_ids(const KernelContext& context, const TensorView& places,
                            const TensorView& ids, const IdSlice& slice) {
  if (ids.numel() == 0) return;
  std::vector<PlacedRange> ranges;
  ranges.reserve(slice.ranges.size());
  std::int64_t before = 0;
  for (const IdRange& range : slice.ranges) {
    ranges.push_back({range.begin, range.end, before});
    before += range.end - range.begin;
  }
  launch_slice_ids(places.as<std::int64_t>(), ids.as<const std::int64_t>(), ids.numel(),
                   ranges.data(), static_cast<int>(ranges.size()), slice.special,
                   slice.special_place, kOtherSlice, stream_of(context));
}

void CudaBackend::first_id_outside(const KernelContext& context, const TensorView& found,
                                   const TensorView& ids, std::int64_t limit,
                                   std::optional<std::int64_t> allowed) {
  const std::int64_t n = ids.numel();
  launch_first_id_outside(found.as<std::int64_t>(), ids.as<const std::int64_t>(), n, limit,
                          allowed ? &*allowed : nullptr,
                          reserve_scratch(context, ids_workspace(n), "first_id_outside").data(),
                          stream_of(context));
}

void CudaBackend::count_ids(const KernelContext& context, const TensorView& count,
                            const TensorView& ids, std::int64_t id) {
  const std::int64_t n = ids.numel();
  launch_count_ids(count.as<std::int64_t>(), ids.as<const std::int64_t>(), n, id,
                   reserve_scratch(context, ids_workspace(n), "count_ids").data(),
                   stream_of(context));
}

}  // namespace meshloom::kernels::cuda
