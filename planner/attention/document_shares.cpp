// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/document_shares.h"

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

}  // namespace

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

}  // namespace meshloom::planner
