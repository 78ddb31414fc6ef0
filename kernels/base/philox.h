// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10: random numbers by position, so that a value depends on (seed, stream, index)
// alone. Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC
// 2011.
#pragma once

#include <array>
#include <cstdint>

namespace meshloom {

using PhiloxBlock = std::array<std::uint32_t, 4>;

/// Returns one block of four 32-bit values. `counter` is 128 bits, `key` 64 bits.
constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ull * counter[0];
    const std::uint64_t p1 = 0xCD9E8D57ull * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// Names a sequence of random numbers. Element i of the sequence is lane (i % 4) of block (i / 4);
/// the block's counter is (i / 4 low, i / 4 high, stream low, stream high), its key the seed.
struct PhiloxStream {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;

  constexpr PhiloxBlock block(std::uint64_t block_index) const {
    return philox4x32(
        {static_cast<std::uint32_t>(block_index), static_cast<std::uint32_t>(block_index >> 32),
         static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
        {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  }
  constexpr std::uint32_t at(std::uint64_t index) const { return block(index / 4)[index % 4]; }
};

/// Returns 24 random bits as a float in [0, 1).
constexpr float philox_uniform(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

}  // namespace meshloom
