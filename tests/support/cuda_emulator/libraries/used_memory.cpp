// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/libraries/used_memory.h"

namespace meshloom::emulator {

void add_use(std::vector<MemoryUse>& uses, const TensorView& view, bool writes) {
  if (!view.defined() || view.numel() == 0) return;
  // Dims that lie dense behind one another, whatever their order, are one range.
  std::int64_t dense = 1;
  Dims sizes, strides;
  std::vector<bool> joined(static_cast<std::size_t>(view.ndim()), false);
  for (bool found = true; found;) {
    found = false;
    for (int d = view.ndim() - 1; d >= 0; --d) {
      const auto at = static_cast<std::size_t>(d);
      const bool repeats = view.size(d) == 1 || view.stride(d) == 0;
      if (joined[at] || (!repeats && view.stride(d) != dense)) continue;
      joined[at] = found = true;
      if (!repeats) dense *= view.size(d);
    }
  }
  for (int d = 0; d < view.ndim(); ++d) {
    if (joined[static_cast<std::size_t>(d)]) continue;
    sizes.push_back(view.size(d));
    strides.push_back(view.stride(d));
  }
  const auto element = static_cast<std::int64_t>(dtype_size(view.dtype));
  for (std::int64_t i = 0; i < numel(sizes); ++i) {
    std::int64_t offset = 0, rest = i;
    for (int d = sizes.size() - 1; d >= 0; --d) {
      offset += rest % sizes[d] * strides[d];
      rest /= sizes[d];
    }
    uses.push_back({view.as<std::byte>() + offset * element,
                    static_cast<std::size_t>(dense * element), writes});
  }
}

}  // namespace meshloom::emulator
