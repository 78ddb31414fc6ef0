// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/short_documents.h"

#include <algorithm>

namespace meshloom::planner {
namespace {

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
    for (share_cut(); !even_enough() && take_back();) share_cut();
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

  void share_cut() {
    std::sort(dealt_.cut.begin(), dealt_.cut.end());
    std::vector<DocumentWork> cut;
    for (const std::size_t document : dealt_.cut) cut.push_back(documents_[document]);
    dealt_.shares = fill_ranks(cut, ranks_);
    excess_.clear();
    for (const RankRoom& rank : ranks_) excess_.push_back(-rank.area);
    for (std::size_t i = 0; i < cut.size(); ++i)
      for (const DocumentShare& share : dealt_.shares[i])
        excess_[share.rank] += static_cast<double>(share.tokens) * cut[i].area_of_token();
  }

  bool even_enough() const {
    return *std::max_element(excess_.begin(), excess_.end()) <= kMostExcess * goal_;
  }

  /// Cuts a document with much area of the rank that has most to do and one with little area of the
  /// rank that has least, so that the two can exchange some of it. False if both have none.
  bool take_back() {
    const auto most = std::max_element(excess_.begin(), excess_.end()) - excess_.begin();
    const auto least = std::min_element(excess_.begin(), excess_.end()) - excess_.begin();
    const bool cut_one = cut_whole(static_cast<std::size_t>(most), true);
    return cut_whole(static_cast<std::size_t>(least), false) || cut_one;
  }

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
  std::vector<double> excess_;  ///< by rank: area beyond what it lacked
  DealtDocuments dealt_;
};

}  // namespace

DealtDocuments deal_short_documents(const std::vector<DocumentWork>& documents,
                                    const std::vector<RankRoom>& ranks, double goal) {
  return ShortDocumentDealer(documents, ranks, goal).deal();
}

}  // namespace meshloom::planner
