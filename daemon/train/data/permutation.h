// SPDX-License-Identifier: Apache-2.0
// A keyed permutation of [0, n): the shuffled order of an epoch without a table.
#pragma once

#include <cstdint>

namespace meshloom::train {

/// Permutation gives element i of the order that (seed, epoch) names, computed on the spot, so that
/// a position in the data is just an integer. A balanced Feistel network over the next even number
/// of bits, its round function Philox; results outside [0, n) are fed in again (cycle walking:
/// Black, Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002), at most 4 times on
/// average.
class Permutation {
 public:
  /// n >= 1.
  Permutation(std::int64_t n, std::uint64_t seed, std::uint64_t epoch);

  std::int64_t size() const { return n_; }
  /// i in [0, n).
  std::int64_t operator()(std::int64_t i) const;

 private:
  std::uint64_t encrypt(std::uint64_t value) const;

  std::int64_t n_;
  std::uint64_t seed_;
  std::uint64_t epoch_;
  int half_bits_;
};

}  // namespace meshloom::train
