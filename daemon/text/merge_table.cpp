// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/merge_table.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <random>
#include <unordered_map>

#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

/// Up to here looking at all pairs for the smallest rank is faster than keeping them sorted.
constexpr std::size_t kFew = 48;

constexpr std::uint32_t kEnd = ~std::uint32_t{0};

/// Positions in order: those that were there when the first was taken are sorted once, those that
/// come later go through a heap.
class Positions {
 public:
  bool empty() const { return taken_ == known_.size() && later_.empty(); }
  void add(std::uint32_t position) {
    if (is_sorted_)
      later_.push(position);
    else
      known_.push_back(position);
  }
  std::uint32_t take() {
    if (!is_sorted_) std::sort(known_.begin(), known_.end());
    is_sorted_ = true;
    if (later_.empty() || (taken_ < known_.size() && known_[taken_] < later_.top()))
      return known_[taken_++];
    const std::uint32_t position = later_.top();
    later_.pop();
    return position;
  }

 private:
  std::vector<std::uint32_t> known_;
  std::size_t taken_ = 0;
  bool is_sorted_ = false;
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> later_;
};

/// A sequence of symbols as a linked list, and the pairs that may be joined: the smallest rank
/// first, those of one rank from left to right.
class MergeQueue {
 public:
  MergeQueue(const MergeTable& table, std::vector<TokenId>& symbols)
      : table_(table), symbols_(symbols), next_(symbols.size()), before_(symbols.size()) {
    const auto count = static_cast<std::uint32_t>(symbols.size());
    for (std::uint32_t i = 0; i < count; ++i) {
      next_[i] = i + 1 < count ? i + 1 : kEnd;
      before_[i] = i > 0 ? i - 1 : kEnd;
    }
    for (std::uint32_t i = 0; i + 1 < count; ++i) offer(i);
  }

  void run() {
    while (!ranks_.empty()) {
      const std::uint32_t rank = ranks_.top();
      Positions& positions = by_rank_[rank];
      // A new pair may have a smaller rank, in vocabularies that were not trained.
      while (!positions.empty() && ranks_.top() == rank) join(positions.take(), rank);
      if (!positions.empty() || ranks_.top() != rank) continue;
      ranks_.pop();
      by_rank_.erase(rank);
    }
    std::size_t end = 0;
    for (std::uint32_t at = 0; at != kEnd; at = next_[at]) symbols_[end++] = symbols_[at];
    symbols_.resize(end);
  }

 private:
  void add(std::uint32_t rank, std::uint32_t position) {
    const auto [at, is_new] = by_rank_.try_emplace(rank);
    if (is_new) ranks_.push(rank);
    at->second.add(position);
  }

  void offer(std::uint32_t position) {
    const auto merge = table_.find(symbols_[position], symbols_[next_[position]]);
    if (merge) add(merge.rank, position);
  }

  /// Joins the pair at `position` if it is still the one of that rank.
  void join(std::uint32_t position, std::uint32_t rank) {
    const std::uint32_t second = next_[position];
    if (second == kEnd || symbols_[position] < 0) return;
    const auto merge = table_.find(symbols_[position], symbols_[second]);
    if (merge.rank != rank) return;
    symbols_[position] = merge.joined;
    symbols_[second] = -1;
    next_[position] = next_[second];
    if (next_[position] != kEnd) {
      before_[next_[position]] = position;
      offer(position);
    }
    if (before_[position] != kEnd) offer(before_[position]);
  }

  const MergeTable& table_;
  std::vector<TokenId>& symbols_;  ///< -1: joined with the one before it
  std::vector<std::uint32_t> next_, before_;
  std::unordered_map<std::uint32_t, Positions> by_rank_;
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ranks_;
};

}  // namespace

MergeTable::MergeTable() {
  std::random_device random;
  multiplier_ = std::uint64_t{random()} << 32 | random() | 1;
}

void MergeTable::reserve(std::size_t merges) {
  const std::vector<Slot> old = std::move(slots_);
  slots_.assign(std::bit_ceil(2 * std::max<std::size_t>(merges, 8)), Slot());
  shift_ = 64 - std::countr_zero(slots_.size());
  size_ = 0;
  for (const Slot& slot : old)
    if (slot.key != kEmpty)
      add(static_cast<TokenId>(slot.key >> 32), static_cast<TokenId>(slot.key), slot.merge);
}

void MergeTable::add(TokenId first, TokenId second, Merge merge) {
  if (2 * (size_ + 1) > slots_.size()) reserve(2 * (size_ + 1));
  const std::uint64_t key = key_of(first, second);
  std::size_t at = place_of(key);
  while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & (slots_.size() - 1);
  size_ += slots_[at].key == kEmpty;
  slots_[at] = {key, merge};
}

void MergeTable::apply(std::vector<TokenId>& symbols) const {
  check(symbols.size() < kEnd, "a word of {} characters: expected at most {}", symbols.size(),
        kEnd - 1);
  if (symbols.size() < 2) return;
  if (symbols.size() > kFew) return MergeQueue(*this, symbols).run();
  Merge merges[kFew];  // Of each symbol with the next one.
  std::size_t pairs = symbols.size() - 1;
  for (std::size_t i = 0; i < pairs; ++i) merges[i] = find(symbols[i], symbols[i + 1]);
  while (pairs > 0) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < pairs; ++i)
      if (merges[i].rank < merges[best].rank) best = i;
    if (!merges[best]) return;
    symbols[best] = merges[best].joined;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    std::copy(merges + best + 1, merges + pairs, merges + best);
    --pairs;
    if (best < pairs) merges[best] = find(symbols[best], symbols[best + 1]);
    if (best > 0) merges[best - 1] = find(symbols[best - 1], symbols[best]);
  }
}

}  // namespace meshloom::text
