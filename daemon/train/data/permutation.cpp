// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/permutation.h"

#include <array>
#include <bit>

#include "kernels/base/error.h"
#include "kernels/base/philox.h"

namespace meshloom::train {
namespace {

constexpr int kRounds = 6;
/// Keeps this use of the seed apart from parameter initialisation and dropout.
constexpr std::uint32_t kDomain = 0x73687566;

}  // namespace

Permutation::Permutation(std::int64_t n, std::uint64_t seed, std::uint64_t epoch)
    : n_(n), seed_(seed), epoch_(epoch) {
  check(n >= 1, "permutation: needs at least one element, got {}", n);
  const int bits = std::bit_width(static_cast<std::uint64_t>(n - 1));
  half_bits_ = bits < 2 ? 1 : (bits + 1) / 2;
}

std::uint64_t Permutation::encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  const std::array<std::uint32_t, 2> key = {static_cast<std::uint32_t>(seed_),
                                            static_cast<std::uint32_t>(seed_ >> 32)};
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    // half_bits_ is at most 32, so that one word holds a half.
    const PhiloxBlock block =
        philox4x32({static_cast<std::uint32_t>(right), kDomain + round,
                    static_cast<std::uint32_t>(epoch_), static_cast<std::uint32_t>(epoch_ >> 32)},
                   key);
    const std::uint64_t next = left ^ (block[0] & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

std::int64_t Permutation::operator()(std::int64_t i) const {
  check(i >= 0 && i < n_, "permutation: element {} is outside [0, {})", i, n_);
  auto value = static_cast<std::uint64_t>(i);
  do {
    value = encrypt(value);
  } while (value >= static_cast<std::uint64_t>(n_));
  return static_cast<std::int64_t>(value);
}

}  // namespace meshloom::train
