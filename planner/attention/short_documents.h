// SPDX-License-Identifier: Apache-2.0
// Which of the documents that a rank could hold whole it does hold whole.
#pragma once

#include "planner/attention/document_shares.h"

namespace meshloom::planner {

/// Documents by their places in the list that was dealt.
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
