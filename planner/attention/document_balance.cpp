// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/document_balance.h"

#include <algorithm>
#include <numeric>

#include "planner/attention/short_documents.h"

namespace meshloom::planner {
namespace {

/// A document of at most budget / kWholeShare tokens may go whole to one rank.
constexpr std::int64_t kWholeShare = 8;

class DocumentDealer {
 public:
  DocumentDealer(const SequenceDocuments& documents, const AttentionMask& mask, int ranks)
      : documents_(documents),
        mask_(mask),
        ranks_(static_cast<std::size_t>(ranks)),
        area_(ranks_, 0),
        room_(ranks_),
        served_(ranks_, 0),
        held_(ranks_) {
    for (std::size_t r = 0; r < ranks_; ++r)
      room_[r] = token_budget(documents.size(), ranks, static_cast<int>(r));
    for (int d = 0; d < documents.count(); ++d) {
      const std::int64_t length = total_size(documents.elements(d));
      work_.push_back({length, visible_area(mask, {0, length}, {0, length})});
    }
  }

  std::vector<IndexRanges> deal() {
    const std::int64_t longest_whole =
        documents_.size() / static_cast<std::int64_t>(ranks_) / kWholeShare;
    std::vector<std::size_t> longest_first(work_.size());
    std::iota(longest_first.begin(), longest_first.end(), std::size_t{0});
    std::stable_sort(longest_first.begin(), longest_first.end(), [&](std::size_t a, std::size_t b) {
      return work_[a].tokens > work_[b].tokens;
    });
    const auto shorter = std::partition_point(
        longest_first.begin(), longest_first.end(),
        [&](std::size_t document) { return work_[document].tokens > longest_whole; });
    for (auto document = longest_first.begin(); document != shorter; ++document)
      for (std::int64_t& room : room_) room -= even_share(*document);
    for (auto document = longest_first.begin(); document != shorter; ++document) spread(*document);
    deal_short({shorter, longest_first.end()});
    return joined_parts(std::move(held_));
  }

 private:
  /// What every rank has at least of a document that is spread over all.
  std::int64_t even_share(std::size_t document) const {
    return work_[document].tokens / static_cast<std::int64_t>(ranks_);
  }

  void hold(std::size_t rank, std::size_t document, ShardRange piece) {
    if (piece.size() == 0) return;
    const IndexRanges& elements = documents_.elements(static_cast<int>(document));
    const std::int64_t begin = elements.front().begin;
    if (elements.size() == 1)
      held_[rank].push_back({begin + piece.begin, begin + piece.end});
    else
      for (const ShardRange& range : sub_ranges(elements, piece)) held_[rank].push_back(range);
    area_[rank] += visible_area(mask_, piece, {0, work_[document].tokens});
  }

  bool has_less(std::size_t a, std::size_t b) const {
    return area_[a] != area_[b] ? area_[a] < area_[b] : a < b;
  }

  /// Each rank's share is a head and a tail. Of an odd share the half with less to do so far has
  /// the longer tail, where a causal token sees more, the others the longer head. Those lie inside,
  /// where that matters less: further out the more a rank has to gain or to lose by it.
  void divide(std::size_t document, const std::vector<DocumentShare>& shares) {
    std::vector<std::size_t> order, odd;
    std::vector<ChunkPair> chunks;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      if (shares[i].tokens % 2 == 1) {
        odd.push_back(i);
        continue;
      }
      order.push_back(i);
      chunks.push_back({shares[i].tokens / 2, shares[i].tokens / 2});
    }
    std::sort(odd.begin(), odd.end(), [&](std::size_t a, std::size_t b) {
      return has_less(shares[a].rank, shares[b].rank);
    });
    for (std::size_t i = 0; i < odd.size(); ++i) {
      const bool long_tail = i % 2 == 0;
      order.push_back(long_tail ? odd[i / 2] : odd[odd.size() - 1 - i / 2]);
      const std::int64_t half = shares[order.back()].tokens / 2;
      chunks.push_back(long_tail ? ChunkPair{half, half + 1} : ChunkPair{half + 1, half});
    }
    std::int64_t next = 0;
    const auto hold_next = [&](std::size_t i, std::int64_t tokens) {
      hold(shares[order[i]].rank, document, {next, next + tokens});
      next += tokens;
    };
    for (std::size_t i = 0; i < order.size(); ++i) hold_next(i, chunks[i].head);
    for (std::size_t i = order.size(); i-- > 0;) hold_next(i, chunks[i].tail);
  }

  /// The odd tokens of all documents go round the ranks, so that ranks have as many, and in each
  /// round to those first that have least to do.
  void spread(std::size_t document) {
    std::vector<DocumentShare> shares;
    for (std::size_t r = 0; r < ranks_; ++r) shares.push_back({r, even_share(document)});
    std::int64_t odd = work_[document].tokens - even_share(document) * std::ssize(shares);
    while (odd > 0) {
      std::vector<std::size_t> waiting;
      for (std::size_t r = 0; r < ranks_; ++r)
        if (!served_[r] && room_[r] > 0) waiting.push_back(r);
      if (waiting.empty()) {
        std::fill(served_.begin(), served_.end(), char{0});
        continue;
      }
      const auto next = waiting.begin() + std::min(odd, std::ssize(waiting)) - 1;
      std::nth_element(waiting.begin(), next, waiting.end(),
                       [&](std::size_t a, std::size_t b) { return has_less(a, b); });
      for (auto rank = waiting.begin(); rank <= next; ++rank, --odd) {
        ++shares[*rank].tokens;
        --room_[*rank];
        served_[*rank] = 1;
      }
    }
    divide(document, shares);
  }

  void deal_short(const std::vector<std::size_t>& longest_first) {
    std::vector<DocumentWork> work;
    for (const std::size_t document : longest_first) work.push_back(work_[document]);
    double goal = 0.0;
    for (const DocumentWork& document : work_)
      goal += static_cast<double>(document.area) / static_cast<double>(ranks_);
    std::vector<RankRoom> rooms;
    for (std::size_t r = 0; r < ranks_; ++r)
      rooms.push_back({room_[r], goal - static_cast<double>(area_[r])});
    const DealtDocuments dealt = deal_short_documents(work, rooms, goal);
    for (std::size_t r = 0; r < ranks_; ++r)
      for (const std::size_t place : dealt.whole[r])
        hold(r, longest_first[place], {0, work[place].tokens});
    for (std::size_t i = 0; i < dealt.cut.size(); ++i)
      divide(longest_first[dealt.cut[i]], dealt.shares[i]);
  }

  const SequenceDocuments& documents_;
  const AttentionMask& mask_;
  std::size_t ranks_;
  std::vector<DocumentWork> work_;
  std::vector<std::int64_t> area_, room_;  ///< room: tokens besides those that are held
  std::vector<char> served_;               ///< which ranks had an odd token in this round
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
