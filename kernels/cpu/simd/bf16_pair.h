// SPDX-License-Identifier: Apache-2.0
// The elements of operands of products with bfloat16 dot-product instructions.
#pragma once

#include <cstdint>

namespace meshloom::kernels::cpu {

/// Bf16Pair is two bfloat16 that follow each other along the dim that a product sums over, the
/// first in the low half: what a dot-product instruction reads per lane.
struct Bf16Pair {
  std::uint32_t bits = 0;
};

/// One element of an operand holds so many values along the summed dim.
template <typename Element>
inline constexpr std::int64_t kPerElement = 1;
template <>
inline constexpr std::int64_t kPerElement<Bf16Pair> = 2;

/// Returns how many elements hold so many values.
template <typename Element>
constexpr std::int64_t elements_of(std::int64_t values) {
  return (values + kPerElement<Element> - 1) / kPerElement<Element>;
}

}  // namespace meshloom::kernels::cpu
