// SPDX-License-Identifier: Apache-2.0
// Which of the documents that a rank could hold whole it does hold whole, and how many tokens of
// those that are cut each rank gets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace meshloom::planner {

/// Attention to a document takes this much: its tokens, and the pairs of a query and a key.
struct DocumentWork {
  std::int64_t tokens = 0, area = 0;

  double area_of_token() const { return static_cast<double>(area) / static_cast<double>(tokens); }
};

/// A rank still lacks this much.
struct RankRoom {
  std::int64_t tokens = 0;
  double area = 0.0;
};

/// So many tokens of a document are a rank's.
struct DocumentShare {
  std::size_t rank = 0;
  std::int64_t tokens = 0;

  bool operator==(const DocumentShare&) const = default;
};

/// DealtDocuments lists documents by their places in the list that was dealt.
struct DealtDocuments {
  std::vector<std::vector<std::size_t>> whole;  ///< by rank
  std::vector<std::size_t> cut;
  std::vector<std::vector<DocumentShare>> shares;  ///< of each that is cut: who gets how much
};

/// Deals documents, those with the largest area a token first, to ranks that lack as many tokens as
/// the documents have. As few as possible are cut, so that each rank gets just the tokens that it
/// lacks and at most a hundredth of `goal` more area than it lacks, as far as documents allow.
/// `goal`: what a rank has in the end.
DealtDocuments deal_short_documents(const std::vector<DocumentWork>& documents,
                                    const std::vector<RankRoom>& ranks, double goal);

}  // namespace meshloom::planner
