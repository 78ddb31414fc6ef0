// SPDX-License-Identifier: Apache-2.0
// Division and rounding of counts, upwards.
#pragma once

namespace meshloom {

/// Returns ceil(n / step) for n >= 0 and step >= 1.
template <typename Int>
constexpr Int divide_up(Int n, Int step) {
  return n / step + (n % step != 0 ? 1 : 0);
}

/// Returns the smallest multiple of `step` that is at least n.
template <typename Int>
constexpr Int round_up(Int n, Int step) {
  return divide_up(n, step) * step;
}

}  // namespace meshloom
