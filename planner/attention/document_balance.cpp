// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/document_balance.h"

#include <algorithm>
#include <numeric>

namespace meshloom::planner {
namespace {

/// A document of at most budget / kWholeShare tokens goes to one rank.
constexpr std::int64_t kWholeShare = 8;

class DocumentDealer {
 public:
  DocumentDealer(const SequenceDocuments& documents, const AttentionMask& mask, int ranks)
      : documents_(documents),
        mask_(mask),
        ranks_(static_cast<std::size_t>(ranks)),
        whole_(documents.size() / ranks / kWholeShare),
        area_(ranks_, 0),
        room_(ranks_),
        by_area_(ranks_),
        held_(ranks_) {
    std::iota(by_area_.begin(), by_area_.end(), std::size_t{0});
    for (int d = 0; d < documents.count(); ++d) longest_first_.push_back(d);
    std::stable_sort(longest_first_.begin(), longest_first_.end(),
                     [&](int a, int b) { return length(a) > length(b); });
    for (std::size_t r = 0; r < ranks_; ++r)
      room_[r] = token_budget(documents.size(), ranks, static_cast<int>(r));
    for (const int d : longest_first_)
      if (length(d) > whole_)
        for (std::int64_t& room : room_) room -= 2 * even_chunk(d);
  }

  std::vector<IndexRanges> deal() {
    for (const int d : longest_first_) {
      if (length(d) > whole_)
        spread(d);
      else
        give_whole(d);
    }
    return joined_parts(std::move(held_));
  }

 private:
  std::int64_t length(int document) const { return total_size(documents_.elements(document)); }
  /// What every head and every tail of a document that is spread has at least.
  std::int64_t even_chunk(int document) const {
    return length(document) / (2 * static_cast<std::int64_t>(ranks_));
  }

  void hold(std::size_t rank, int document, ShardRange piece) {
    for (const ShardRange& range : sub_ranges(documents_.elements(document), piece))
      held_[rank].push_back(range);
    area_[rank] += visible_area(mask_, piece, {0, length(document)});
  }

  void sort_by_area() {
    std::sort(by_area_.begin(), by_area_.end(), [&](std::size_t a, std::size_t b) {
      return area_[a] != area_[b] ? area_[a] < area_[b] : a < b;
    });
  }

  /// The odd tokens go round the ranks by area, to tails first, where a causal token sees more.
  void spread(int document) {
    const std::int64_t chunk = even_chunk(document);
    std::vector<ChunkPair> chunks(ranks_, ChunkPair{chunk, chunk});
    std::int64_t odd = length(document) - 2 * chunk * static_cast<std::int64_t>(ranks_);
    sort_by_area();
    for (std::size_t i = 0; odd > 0; i = (i + 1) % ranks_) {
      const std::size_t rank = by_area_[i];
      if (room_[rank] == 0) continue;
      ChunkPair& pair = chunks[rank];
      const bool to_tail = i < ranks_ / 2 ? pair.tail <= pair.head : pair.tail < pair.head;
      ++(to_tail ? pair.tail : pair.head);
      --room_[rank];
      --odd;
    }
    const std::vector<IndexRanges> parts = zigzag(chunks, {0, length(document)});
    for (std::size_t r = 0; r < ranks_; ++r)
      for (const ShardRange& piece : parts[r]) hold(r, document, piece);
  }

  /// Of the ranks with room for all of it the one with the least area; if there is none, pieces go
  /// to the ranks with the least area.
  void give_whole(int document) {
    const std::int64_t size = length(document);
    for (std::int64_t begin = 0; begin < size;) {
      std::size_t best = ranks_;
      bool best_fits = false;
      for (std::size_t r = 0; r < ranks_; ++r) {
        if (room_[r] == 0) continue;
        const bool fits = room_[r] >= size - begin;
        if (best == ranks_ || fits > best_fits || (fits == best_fits && area_[r] < area_[best])) {
          best = r;
          best_fits = fits;
        }
      }
      const std::int64_t end = std::min(size, begin + room_[best]);
      room_[best] -= end - begin;
      hold(best, document, {begin, end});
      begin = end;
    }
  }

  const SequenceDocuments& documents_;
  const AttentionMask& mask_;
  std::size_t ranks_;
  std::int64_t whole_;
  std::vector<int> longest_first_;
  std::vector<std::int64_t> area_, room_;  ///< room: tokens besides the even chunks
  std::vector<std::size_t> by_area_;
  std::vector<std::vector<ShardRange>> held_;
};

}  // namespace

std::vector<IndexRanges> zigzag(const std::vector<ChunkPair>& chunks, ShardRange stretch) {
  std::vector<IndexRanges> parts(chunks.size());
  std::int64_t next = stretch.begin;
  for (std::size_t r = 0; r < chunks.size(); ++r) {
    append_range(parts[r], {next, next + chunks[r].head});
    next += chunks[r].head;
  }
  for (std::size_t r = chunks.size(); r-- > 0;) {
    append_range(parts[r], {next, next + chunks[r].tail});
    next += chunks[r].tail;
  }
  return parts;
}

std::vector<IndexRanges> joined_parts(std::vector<std::vector<ShardRange>> ranges) {
  std::vector<IndexRanges> parts;
  for (std::vector<ShardRange>& list : ranges) {
    std::sort(list.begin(), list.end(),
              [](const ShardRange& a, const ShardRange& b) { return a.begin < b.begin; });
    IndexRanges part;
    for (const ShardRange& range : list) append_range(part, range);
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<IndexRanges> document_parts(const SequenceDocuments& documents,
                                        const AttentionMask& mask, int ranks) {
  return DocumentDealer(documents, mask, ranks).deal();
}

}  // namespace meshloom::planner
