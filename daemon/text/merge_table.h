// SPDX-License-Identifier: Apache-2.0
// MergeTable: which pairs of tokens byte-pair encoding joins, and in what order.
//
// Source: Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units",
// 2016.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/text/vocabulary.h"

namespace meshloom::text {

/// Places in it depend on a number that is drawn when it is made: whoever writes a file cannot
/// choose merges that all have one place.
class MergeTable {
 public:
  MergeTable();

  /// Pairs of smaller rank are joined first.
  struct Merge {
    std::uint32_t rank = kNone;
    TokenId joined = 0;
    explicit operator bool() const { return rank != kNone; }
  };
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  void reserve(std::size_t merges);
  /// A pair that is there already gets the new rank.
  void add(TokenId first, TokenId second, Merge merge);
  std::size_t size() const { return size_; }

  Merge find(TokenId first, TokenId second) const {
    if (slots_.empty()) return {};
    const std::uint64_t key = key_of(first, second);
    for (std::size_t at = place_of(key);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].key == key) return slots_[at].merge;
      if (slots_[at].key == kEmpty) return {};
    }
  }

  /// Joins pairs of `symbols` until none is left: always the pair of the smallest rank, of several
  /// the first. Time n log n, whatever the symbols are; memory 16 bytes a symbol besides them.
  void apply(std::vector<TokenId>& symbols) const;

 private:
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

  static std::uint64_t key_of(TokenId first, TokenId second) {
    return static_cast<std::uint64_t>(first) << 32 | static_cast<std::uint32_t>(second);
  }
  std::size_t place_of(std::uint64_t key) const { return key * multiplier_ >> shift_; }

  std::vector<Slot> slots_;  ///< open addressing, a power of two of them, at most half in use
  std::size_t size_ = 0;
  std::uint64_t multiplier_;  ///< odd
  int shift_ = 0;             ///< leaves as many bits as the number of slots has
};

}  // namespace meshloom::text
