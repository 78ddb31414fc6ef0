// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/short_documents.h"

#include <algorithm>
#include <cmath>

namespace meshloom::planner {
namespace {

class RankFiller {
 public:
  explicit RankFiller(const std::vector<DocumentWork>& documents)
      : documents_(documents), shares_(documents.size()), last_(documents.size() - 1) {
    for (const DocumentWork& document : documents) left_.push_back(document.tokens);
  }

  void fill(std::size_t rank, RankRoom room) {
    while (room.tokens > 0) {
      while (first_ < last_ && left_[first_] == 0) ++first_;
      while (first_ < last_ && left_[last_] == 0) --last_;
      const std::int64_t of_first = wanted_of_first(room);
      const std::size_t document = of_first > 0 ? first_ : last_;
      const std::int64_t tokens = std::min(of_first > 0 ? of_first : room.tokens, left_[document]);
      give(rank, document, tokens);
      room.tokens -= tokens;
      room.area -= static_cast<double>(tokens) * documents_[document].area_of_token();
    }
  }

  std::vector<std::vector<DocumentShare>> take_shares() { return std::move(shares_); }

 private:
  /// How many tokens of the first document and otherwise of the last one have the area that is
  /// lacking.
  std::int64_t wanted_of_first(const RankRoom& room) const {
    const double most = documents_[first_].area_of_token();
    const double least = documents_[last_].area_of_token();
    if (most <= least) return room.tokens;
    const auto tokens = static_cast<double>(room.tokens);
    return std::llround(std::clamp((room.area - tokens * least) / (most - least), 0.0, tokens));
  }

  void give(std::size_t rank, std::size_t document, std::int64_t tokens) {
    std::vector<DocumentShare>& shares = shares_[document];
    if (shares.empty() || shares.back().rank != rank) shares.push_back({rank, 0});
    shares.back().tokens += tokens;
    left_[document] -= tokens;
  }

  const std::vector<DocumentWork>& documents_;
  std::vector<std::int64_t> left_;
  std::vector<std::vector<DocumentShare>> shares_;
  std::size_t first_ = 0, last_;  ///< those that have tokens left
};

/// Fills the ranks with documents of which the first have the largest area a token, and says who
/// gets how much of each; a rank is there once, and only with tokens. Ranks and documents have as
/// many tokens. A rank takes from the first and the last document that are left so much of each
/// that it gets the area that it lacks, as if all tokens of a document were alike; so documents are
/// cut in few pieces. The ranks whose lack is furthest from the mean come first, since for them
/// there has to be a choice.
std::vector<std::vector<DocumentShare>> fill_ranks(const std::vector<DocumentWork>& documents,
                                                   const std::vector<RankRoom>& ranks) {
  if (documents.empty()) return {};
  DocumentWork all;
  for (const DocumentWork& document : documents) {
    all.tokens += document.tokens;
    all.area += document.area;
  }
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].tokens == 0) continue;
    const double lack = ranks[r].area / static_cast<double>(ranks[r].tokens);
    order.emplace_back(-std::abs(lack - all.area_of_token()), r);
  }
  std::sort(order.begin(), order.end());
  RankFiller filler(documents);
  for (const auto& [key, rank] : order) filler.fill(rank, ranks[rank]);
  return filler.take_shares();
}

/// So much more than the mean, as a share of it, a rank may have to do before documents are cut.
constexpr double kMostExcess = 0.01;
/// Of two ranks with as much to do, counting what their room would take at least, the one with more
/// room has to come first; a little less is counted, so that rounding has no say.
constexpr double kRoomWeight = 0.9;

class ShortDocumentDealer {
 public:
  ShortDocumentDealer(const std::vector<DocumentWork>& documents, std::vector<RankRoom> ranks,
                      double goal)
      : documents_(documents), ranks_(std::move(ranks)), goal_(goal) {
    dealt_.whole.resize(ranks_.size());
    least_ = documents.empty() ? 0.0 : documents.back().area_of_token();
  }

  DealtDocuments deal() {
    for (std::size_t d = 0; d < documents_.size(); ++d) place(d);
    while (true) {
      std::sort(dealt_.cut.begin(), dealt_.cut.end());
      std::vector<DocumentWork> cut;
      for (const std::size_t document : dealt_.cut) cut.push_back(documents_[document]);
      dealt_.shares = fill_ranks(cut, ranks_);
      std::vector<double> excess(ranks_.size());  // by rank: area beyond what it lacked
      for (std::size_t r = 0; r < ranks_.size(); ++r) excess[r] = -ranks_[r].area;
      for (std::size_t i = 0; i < cut.size(); ++i)
        for (const DocumentShare& share : dealt_.shares[i])
          excess[share.rank] += static_cast<double>(share.tokens) * cut[i].area_of_token();
      const auto most = std::max_element(excess.begin(), excess.end());
      const auto least = std::min_element(excess.begin(), excess.end());
      if (*most <= kMostExcess * goal_) break;
      // A document with much area of the rank that has most to do is cut and one with little area
      // of the rank that has least, so that the two can exchange some of it.
      const bool cut_most = cut_whole(static_cast<std::size_t>(most - excess.begin()), true);
      const bool cut_least = cut_whole(static_cast<std::size_t>(least - excess.begin()), false);
      if (!cut_most && !cut_least) break;
    }
    return std::move(dealt_);
  }

 private:
  /// The document goes to the rank that lacks most, beside an even share of those that are cut.
  void place(std::size_t document) {
    const DocumentWork& work = documents_[document];
    const auto count = static_cast<std::int64_t>(ranks_.size());
    const std::int64_t reserve = (cut_tokens_ + count - 1) / count;
    const auto lack = [&](const RankRoom& rank) {
      return rank.area - kRoomWeight * least_ * static_cast<double>(rank.tokens);
    };
    std::size_t best = ranks_.size();
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      if (ranks_[r].tokens >= work.tokens + reserve &&
          (best == ranks_.size() || lack(ranks_[r]) > lack(ranks_[best])))
        best = r;
    if (best == ranks_.size()) {
      cut_tokens_ += work.tokens;
      dealt_.cut.push_back(document);
    } else {
      dealt_.whole[best].push_back(document);
      ranks_[best].tokens -= work.tokens;
      ranks_[best].area -= static_cast<double>(work.area);
    }
  }

  /// Cuts the first or the last document that a rank holds whole. False if it holds none.
  bool cut_whole(std::size_t rank, bool first) {
    std::vector<std::size_t>& whole = dealt_.whole[rank];
    if (whole.empty()) return false;
    const auto at = first ? whole.begin() : whole.end() - 1;
    ranks_[rank].tokens += documents_[*at].tokens;
    ranks_[rank].area += static_cast<double>(documents_[*at].area);
    dealt_.cut.push_back(*at);
    whole.erase(at);
    return true;
  }

  const std::vector<DocumentWork>& documents_;
  std::vector<RankRoom> ranks_;
  double goal_;
  double least_;  ///< area of a token of the last document
  std::int64_t cut_tokens_ = 0;
  DealtDocuments dealt_;
};

}  // namespace

DealtDocuments deal_short_documents(const std::vector<DocumentWork>& documents,
                                    const std::vector<RankRoom>& ranks, double goal) {
  return ShortDocumentDealer(documents, ranks, goal).deal();
}

}  // namespace meshloom::planner
