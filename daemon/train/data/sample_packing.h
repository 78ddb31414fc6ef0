// SPDX-License-Identifier: Apache-2.0
// Texts of several lengths packed whole into samples of one length.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace meshloom::train {

/// Returns which texts each sample has, by their indices, in ascending order. Every text is in one
/// sample; those of a sample have at most `capacity` positions together. The longest are placed
/// first, each where it leaves the least room (best fit decreasing), in the sample that was begun
/// first of several; samples are in the order of their first texts. Lengths are 1 to `capacity`.
std::vector<std::vector<std::int64_t>> pack_texts(std::span<const std::int64_t> lengths,
                                                  std::int64_t capacity);

}  // namespace meshloom::train
