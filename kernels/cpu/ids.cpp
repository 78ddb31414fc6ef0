// SPDX-License-Identifier: Apache-2.0
// Ids of tokens and classes: calls of Backend on the CPU.
#include "kernels/cpu/cpu_backend.h"

#include <algorithm>

namespace meshloom::kernels::cpu {
namespace {

std::span<const std::int64_t> values_of(const TensorView& ids) {
  return {ids.as<const std::int64_t>(), static_cast<std::size_t>(ids.numel())};
}

std::int64_t place_of(std::int64_t id, const IdSlice& slice) {
  if (id == slice.special) return slice.special_place;
  std::int64_t before = 0;
  for (const IdRange& range : slice.ranges) {
    if (id >= range.begin && id < range.end) return before + id - range.begin;
    before += range.end - range.begin;
  }
  return kOtherSlice;
}

}  // namespace

void CpuBackend::slice_ids(const KernelContext&, const TensorView& places, const TensorView& ids,
                           const IdSlice& slice) {
  const std::span<const std::int64_t> from = values_of(ids);
  std::transform(from.begin(), from.end(), places.as<std::int64_t>(),
                 [&](std::int64_t id) { return place_of(id, slice); });
}

void CpuBackend::first_id_outside(const KernelContext&, const TensorView& found,
                                  const TensorView& ids, std::int64_t limit,
                                  std::optional<std::int64_t> allowed) {
  const std::span<const std::int64_t> all = values_of(ids);
  const auto first = std::find_if(all.begin(), all.end(), [&](std::int64_t id) {
    return (id < 0 || id >= limit) && id != allowed;
  });
  const bool any = first != all.end();
  found.as<std::int64_t>()[0] = any ? first - all.begin() : -1;
  found.as<std::int64_t>()[1] = any ? *first : 0;
}

void CpuBackend::count_ids(const KernelContext&, const TensorView& count, const TensorView& ids,
                           std::int64_t id) {
  const std::span<const std::int64_t> all = values_of(ids);
  *count.as<std::int64_t>() = std::count(all.begin(), all.end(), id);
}

}  // namespace meshloom::kernels::cpu
