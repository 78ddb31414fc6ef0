// SPDX-License-Identifier: Apache-2.0
// Hashes of a few numbers; bytes are hashed by xxHash.
#pragma once

#include <cstdint>

namespace meshloom {

/// Returns the hash of what `hash` stands for, followed by `value`.
constexpr std::uint64_t hash_mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

}  // namespace meshloom
